#pragma once
// GET /metrics: Prometheus text of what the engine and the process are doing, read from live state at the scrape. Owned
// by the app; loop thread only. Names, labels and meanings follow vLLM's (heddle: for those of our own).
#include <cstdint>
#include <functional>
#include <string>

#include "stats/engine_snapshot.h"

namespace heddle::stats {

struct ExporterConfig {
  std::string model_name;  // first served name
  uint32_t block_size = 16;
  uint32_t n_blocks = 0;
  bool enable_prefix_caching = true;
};

// Numbers of the network layer, where the app has one.
struct NetSnapshot {
  uint64_t connections_open = 0, connections_accepted = 0;
};

class Exporter {
 public:
  using ReadEngine = std::function<EngineSnapshot()>;
  using ReadNet = std::function<NetSnapshot()>;
  Exporter(ExporterConfig config, ReadEngine engine, ReadNet net);

  // Text format version 0.0.4.
  std::string text() const;

 private:
  ExporterConfig config_;
  ReadEngine engine_;
  ReadNet net_;
};

}  // namespace heddle::stats
