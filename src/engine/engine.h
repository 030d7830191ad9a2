#pragma once
// The engine: intake, step loop, outputs. Loop thread only. Everything that decides is here and in sched/; what
// computes is behind ModelRunner. Lifetime: construct, spawn run() in the owner's scope, submit/abort at will, stop(),
// join.
#include <boost/asio/awaitable.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/model_runner.h"
#include "engine/output.h"
#include "engine/request.h"
#include "sched/config.h"
#include "stats/engine_snapshot.h"
#include "text/tokenizer.h"

namespace heddle::engine {

// Why a request was refused at the door. Nothing was kept.
struct Refusal {
  enum class Kind : uint8_t { never_fits, queue_full, stopping, duplicate_id, bad_request } kind;
  std::string message;
  uint32_t blocks_needed = 0, blocks_available = 0;  // for never_fits
};

using Snapshot = stats::EngineSnapshot;

struct Config {
  sched::Config scheduler;
  uint32_t pipeline_depth = 1;
  uint32_t vocab_size = 0;  // token ids of requests must be below; 0: the tokenizer's size, or unchecked without one
  std::optional<TokenId> primary_eos;  // ends with no stop token reported; default: the tokenizer's first end token
};

class Engine {
 public:
  Engine(Config config, std::unique_ptr<ModelRunner> runner, std::shared_ptr<const text::Tokenizer> tokenizer);
  ~Engine();

  Result<void, Refusal> submit(Request request, std::shared_ptr<OutputSink> sink);
  // Ends a live request with reason abort; unknown ids are ignored. Its sink hears of it at the next flush, never
  // inside this call; its blocks return when no launched step refers to them.
  void abort(const std::string& id);
  // The step loop. Ends after stop(), when every live request has ended and no step is in flight.
  boost::asio::awaitable<void> run();
  // No new work; live requests go on. Then abort_all() when the grace time is over.
  void stop();
  void abort_all();

  Snapshot snapshot() const;
  bool healthy() const;             // false after a device fault
  MonotonicTime last_step() const;  // when the newest step was committed
  // Invariants that do not hold now, one line each: empty, or there is a bug.
  std::vector<std::string> violations() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace heddle::engine
