#pragma once
// GET /metrics: Prometheus text of what the engines and the process are doing, read from live state at the scrape.
// Owned by the app; loop thread only. Names, labels and meanings follow vLLM's (heddle: for those of our own). Every
// series of a closed label set is there from the start, at 0, for every engine.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "stats/engine_snapshot.h"

namespace heddle::stats {

struct ExporterConfig {
  std::string model_name;  // first served name
  uint32_t n_engines = 1;
  uint32_t block_size = 16;
  uint32_t n_blocks = 0;  // of each engine
  bool enable_prefix_caching = true;
};

// Numbers of all engines together, and of each.
struct GroupSnapshot {
  std::vector<EngineSnapshot> engines;  // by rank; empty while there are none yet
  uint64_t refused_reqs = 0, refused_tokens = 0;
};

// Numbers of the network layer, where the app has one.
struct NetSnapshot {
  uint64_t connections_open = 0, connections_accepted = 0;
};

class Exporter {
 public:
  using ReadEngines = std::function<GroupSnapshot()>;
  using ReadNet = std::function<NetSnapshot()>;
  Exporter(ExporterConfig config, ReadEngines engines, ReadNet net);

  // Text format version 0.0.4.
  std::string text() const;

 private:
  ExporterConfig config_;
  ReadEngines engines_;
  ReadNet net_;
};

}  // namespace heddle::stats
