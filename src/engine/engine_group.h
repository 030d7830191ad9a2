#pragma once
// N engines in one process (data parallel), or one: the object that api/ and app/ talk to. It chooses an engine for
// each request, holds the limits of the queue over all of them, and passes operations on to each. Owned by app; loop
// thread only. Each engine has a step loop, a pool and a runner of its own; they share the loop and, on the CPU, the
// one team.
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "engine/lockstep.h"
#include "engine/queue_limits.h"
#include "engine/wave.h"

namespace heddle::engine {

struct GroupOptions {
  QueueLimits limits;
  // Lockstep (engines whose model needs collectives in every step): see wave.h. Dense engines run without.
  bool lockstep = false;
  uint32_t sync_interval = 16;  // steps between two agreements of a lockstep group
};

struct Placement {
  std::optional<uint32_t> rank;  // asked for by the client (X-data-parallel-rank); refused unless below n_engines()
  std::optional<uint32_t> wave;  // of a lockstep group: the current one when the request was read; absent: now
};

class EngineGroup final : private Lockstep {
 public:
  EngineGroup(std::vector<std::unique_ptr<Engine>> engines, GroupOptions options);
  ~EngineGroup() override;

  // Whether the limit of sequences has room for n_sequences more. For a request whose prompt is still to be tokenised:
  // what is full is refused before that is done. A refusal counts, as submit()'s does; room may be gone by then.
  Result<void, Refusal> check_room(uint64_t n_sequences);
  // All of these requests or none: the prompts of one API request. `sinks` has one for each. The limits are checked for
  // the sum: a request of n counts n sequences, and its prompt's tokens once, since it is computed once. Then each goes
  // to the engine that balance.h chooses, which may refuse it. In that case the ones before it are aborted, and their
  // sinks hear of it at the next flush, after the caller has the refusal: it is the caller's part that those sinks say
  // nothing to the client any more.
  Result<void, Refusal> submit(std::vector<Request> requests, std::vector<std::shared_ptr<OutputSink>> sinks,
                               Placement placement = {});
  // As Engine has them, where the id lives. A session stays on its engine; its input counts in the limit of tokens.
  Result<void, Refusal> append(const std::string& id, const Turn& turn);
  void close_session(const std::string& id);
  void ready(const std::string& id);
  void fail(const std::string& id, const std::string& message);
  bool abort(const std::string& id);
  uint32_t abort_all();

  // Runs every engine's loop; ends when all have ended.
  boost::asio::awaitable<void> run();
  void stop();

  // Operations on all engines, side by side, as Engine has them. All engines are asked, whatever becomes of the others;
  // of several errors the one of the lowest rank is given.
  boost::asio::awaitable<void> pause(PauseMode mode, bool clear_cache);
  void resume();
  boost::asio::awaitable<Result<void>> sleep(SleepLevel level, PauseMode mode);
  boost::asio::awaitable<Result<void>> wake_up(WakeTags tags);
  bool is_paused() const;                                               // an engine is
  bool is_sleeping() const;                                             // an engine is
  SleepLevel sleep_level() const;                                       // of the one that sleeps deepest
  boost::asio::awaitable<bool> reset_prefix_cache(bool reset_running);  // whether all did

  uint32_t n_engines() const { return static_cast<uint32_t>(engines_.size()); }
  Engine& engine(uint32_t rank) { return *engines_[rank]; }
  const Engine& engine(uint32_t rank) const { return *engines_[rank]; }
  std::vector<Snapshot> snapshots() const;
  // Requests refused by the limits, by reason; in API requests.
  uint64_t n_refused_reqs() const { return n_refused_reqs_; }
  uint64_t n_refused_tokens() const { return n_refused_tokens_; }
  bool healthy() const;                             // all engines are
  const Wave* wave() const { return wave_.get(); }  // null without lockstep

 private:
  std::optional<Refusal> check_limits(uint64_t n_sequences, uint64_t n_tokens);
  Result<void, Refusal> submit_one(Request request, std::shared_ptr<OutputSink> sink, const Placement& placement);
  bool is_live(const std::string& id) const;
  uint32_t place(const Request& request, const Placement& placement);
  void begin_wave(uint32_t stamp);
  void settle(Wave::Agreement agreement);
  void wake_all();
  boost::asio::awaitable<void> until_wave_ends();

  // ---- Lockstep
  bool may_step(uint32_t rank, bool unfinished, bool drained) override;
  void stepped(uint32_t rank) override { wave_->count_step(rank); }
  bool in_wave(uint32_t rank) const override { return wave_->running() && !wave_->has_left(rank); }
  void leave(uint32_t rank) override { settle(wave_->leave(rank)); }

  std::vector<std::unique_ptr<Engine>> engines_;
  GroupOptions options_;
  std::unique_ptr<Wave> wave_;  // null without lockstep
  uint32_t next_scan_ = 0;      // where the next choice starts looking
  uint64_t n_refused_reqs_ = 0, n_refused_tokens_ = 0;
  std::vector<boost::asio::steady_timer*> wave_watchers_;  // of until_wave_ends(); cancelled when a wave is complete
};

}  // namespace heddle::engine
