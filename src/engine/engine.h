#pragma once
// The engine: intake, step loop, outputs. Loop thread only. Everything that decides is here and in sched/; what
// computes is behind ModelRunner. Lifetime: construct, spawn run() in the owner's scope, submit/abort at will, stop(),
// join. Limits of the queue are not here: they hold over all engines of a group (engine_group.h).
#include <boost/asio/awaitable.hpp>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/lockstep.h"
#include "engine/model_runner.h"
#include "engine/output.h"
#include "engine/rates.h"
#include "engine/request.h"
#include "sched/config.h"
#include "stats/engine_snapshot.h"
#include "text/tokenizer.h"

namespace heddle::engine {

// Why a request was refused at the door. Nothing was kept.
struct Refusal {
  enum class Kind : uint8_t { never_fits, queue_full, stopping, duplicate_id, unknown_id, bad_request } kind;
  std::string message;
  uint32_t blocks_needed = 0, blocks_available = 0;  // for never_fits
  uint32_t retry_after = 0;                          // seconds, for queue_full
};

using Snapshot = stats::EngineSnapshot;

struct Config {
  sched::Config scheduler;
  uint32_t pipeline_depth = 1;
  uint32_t vocab_size = 0;  // token ids of requests must be below; 0: the tokenizer's size, or unchecked without one
  std::optional<TokenId> primary_eos;  // ends with no stop token reported; default: the tokenizer's first end token
  MonotonicTime (*clock)() = Monotonic::now;  // replaced in tests
  std::optional<Rates> rates;                 // made-up ones instead of measured ones, for tests
};

// What happens to live requests when an engine is paused.
enum class PauseMode : uint8_t {
  abort,  // they end with reason abort
  wait,   // those that have begun are finished first; the others stay queued
  keep,   // everything stands still where it is
};

// What wake_up() brings back. Planning resumes when all of it is there.
struct WakeTags {
  bool weights = true, kv_cache = true, scheduling = true;
};

// What a balancer and the queue limits look at.
struct Load {
  uint32_t running = 0, waiting = 0;  // sequences; waiting: deferred ones included
  uint32_t deferred = 0;              // of those: they wait for something else than room
  double kv_usage = 0;                // of the blocks, 0 to 1
  uint64_t queued_tokens = 0;         // prompts, whole, of sequences without a first token
  uint64_t uncached_tokens = 0;       // of them, rows still to be computed
  uint32_t soonest_end = 0;           // tokens until the running sequence nearest to its limit reaches it; 0: none runs
  Rates rates;
};

class Engine {
 public:
  Engine(Config config, std::unique_ptr<ModelRunner> runner, std::shared_ptr<const text::Tokenizer> tokenizer);
  ~Engine();

  // ---- requests
  Result<void, Refusal> submit(Request request, std::shared_ptr<OutputSink> sink);
  // More input for a live session: joined to the prompt if nothing of it was computed yet, else the next turn.
  Result<void, Refusal> append(const std::string& id, Turn turn);
  // No more input: the session ends when what it was given is answered.
  void close_session(const std::string& id);
  // What a deferred request waited for is there; or it failed, and the request ends with reason error.
  void ready(const std::string& id);
  void fail(const std::string& id, std::string message);
  // Ends a live request with reason abort; unknown ids are ignored (false). Its sink hears of it at the next flush,
  // never inside this call; its blocks return when no launched step refers to them.
  bool abort(const std::string& id);
  uint32_t abort_all();  // gives how many requests
  bool is_live(const std::string& id) const;

  // ---- the loop
  // Ends after stop(), when every live request has ended and no step is in flight.
  boost::asio::awaitable<void> run();
  // No new work; live requests go on. Then abort_all() when the grace time is over.
  void stop();
  // Before run(): the engine steps when its group says so (lockstep.h), which outlives run(). wake() makes it ask
  // again.
  void join_lockstep(Lockstep& lockstep, uint32_t rank);
  void wake();

  // ---- operations. They are for run()'s loop: awaited until they have taken effect there.
  boost::asio::awaitable<void> pause(PauseMode mode, bool clear_cache);
  void resume();
  boost::asio::awaitable<Result<void>> sleep(SleepLevel level, PauseMode mode);
  // On an error the engine sleeps on.
  boost::asio::awaitable<Result<void>> wake_up(WakeTags tags);
  bool is_paused() const;
  SleepLevel sleep_level() const;  // pause: awake, or asleep at level 0 (is_paused)
  bool is_sleeping() const;        // weights or KV are away, or it is paused
  // False while blocks are held. reset_running: running sequences give theirs up first and are computed again.
  boost::asio::awaitable<bool> reset_prefix_cache(bool reset_running);

  // ---- numbers
  Snapshot snapshot() const;
  Load load() const;
  // Prompt tokens that the prefix cache holds: for the choice between engines.
  uint32_t cached_tokens(std::span<const TokenId> prompt, const std::string& cache_salt) const;
  bool healthy() const;             // false after a device fault
  MonotonicTime last_step() const;  // when the newest step was committed
  // Invariants that do not hold now, one line each: empty, or there is a bug.
  std::vector<std::string> violations() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace heddle::engine
