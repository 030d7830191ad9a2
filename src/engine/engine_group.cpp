#include "engine/engine_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/check.h"
#include "engine/balance.h"
#include "engine/side_by_side.h"

namespace heddle::engine {

namespace asio = boost::asio;

EngineGroup::EngineGroup(std::vector<std::unique_ptr<Engine>> engines, GroupOptions options)
    : engines_(std::move(engines)), options_(options) {
  HEDDLE_CHECK(!engines_.empty());
  if (!options_.lockstep) return;
  wave_ = std::make_unique<Wave>(n_engines(), options_.sync_interval);
  for (uint32_t rank = 0; rank < n_engines(); ++rank) engines_[rank]->join_lockstep(*this, rank);
}

EngineGroup::~EngineGroup() = default;

// ---- requests

std::optional<Refusal> EngineGroup::check_limits(uint64_t n_sequences, uint64_t n_tokens) {
  if (options_.limits.max_num_queued_reqs == 0 && options_.limits.max_num_queued_tokens == 0) return std::nullopt;
  std::vector<Load> loads;
  for (const auto& engine : engines_) loads.push_back(engine->load());
  std::optional<QueueRefusal> refusal = engine::check_limits(options_.limits, loads, n_sequences, n_tokens);
  if (!refusal) return std::nullopt;
  ++(refusal->limit == QueueLimit::reqs ? n_refused_reqs_ : n_refused_tokens_);
  return Refusal{
      .kind = Refusal::Kind::queue_full, .message = std::move(refusal->message), .retry_after = refusal->retry_after};
}

Result<void, Refusal> EngineGroup::check_room(uint64_t n_sequences) {
  if (options_.limits.max_num_queued_reqs == 0) return {};
  // No tokens: a queue that holds as many as it may is no reason yet.
  if (std::optional<Refusal> refusal = check_limits(n_sequences, 0)) return tl::unexpected(std::move(*refusal));
  return {};
}

// An id is live on one engine at most, so that abort and append mean one request.
bool EngineGroup::is_live(const std::string& id) const {
  return std::any_of(engines_.begin(), engines_.end(), [&](const auto& engine) { return engine->is_live(id); });
}

uint32_t EngineGroup::place(const Request& request, const Placement& placement) {
  if (placement.rank) return *placement.rank;
  if (n_engines() == 1) return 0;
  std::vector<Candidate> candidates;
  for (const auto& engine : engines_) {
    const Load load = engine->load();
    candidates.push_back({.own_in_flight = load.running + load.waiting,  // the one front end: nothing comes from others
                          .running = load.running,
                          .waiting = load.waiting - load.deferred,
                          .kv_usage = load.kv_usage,
                          .cached_tokens = engine->cached_tokens(request.prompt, request.cache_salt),
                          .healthy = engine->healthy()});
  }
  return choose(candidates, next_scan_++);
}

Result<void, Refusal> EngineGroup::submit(std::vector<Request> requests, std::vector<std::shared_ptr<OutputSink>> sinks,
                                          Placement placement) {
  HEDDLE_CHECK_OP(requests.size(), ==, sinks.size());
  if (placement.rank && *placement.rank >= n_engines())
    return tl::unexpected(Refusal{.kind = Refusal::Kind::bad_request,
                                  .message = fmt::format("data parallel rank {} does not exist: it must be below {}",
                                                         *placement.rank, n_engines())});
  uint64_t n_sequences = 0, n_tokens = 0;
  for (const Request& request : requests) {
    n_sequences += request.n;
    n_tokens += request.prompt.size();
  }
  if (std::optional<Refusal> refusal = check_limits(n_sequences, n_tokens)) return tl::unexpected(std::move(*refusal));
  std::vector<std::string> taken;
  for (size_t i = 0; i < requests.size(); ++i) {
    std::string id = requests[i].id;
    Result<void, Refusal> accepted = submit_one(std::move(requests[i]), std::move(sinks[i]), placement);
    if (!accepted) {
      for (const std::string& earlier : taken) abort(earlier);
      return accepted;
    }
    taken.push_back(std::move(id));
  }
  if (wave_ && !is_paused()) begin_wave(placement.wave.value_or(wave_->current_wave()));
  return {};
}

Result<void, Refusal> EngineGroup::submit_one(Request request, std::shared_ptr<OutputSink> sink,
                                              const Placement& placement) {
  // The engine that is chosen may not be the one that has the id.
  if (is_live(request.id))
    return tl::unexpected(
        Refusal{.kind = Refusal::Kind::duplicate_id, .message = fmt::format("request id {} is in use", request.id)});
  const uint32_t rank = place(request, placement);
  return engines_[rank]->submit(std::move(request), std::move(sink));
}

Result<void, Refusal> EngineGroup::append(const std::string& id, const Turn& turn) {
  for (const auto& engine : engines_) {
    if (!engine->is_live(id)) continue;
    // The session holds its place already: only its new tokens count.
    if (std::optional<Refusal> refusal = check_limits(0, turn.tokens.size()))
      return tl::unexpected(std::move(*refusal));
    return engine->append(id, turn);
  }
  return engines_.front()->append(id, turn);  // says why not
}

void EngineGroup::close_session(const std::string& id) {
  for (const auto& engine : engines_) engine->close_session(id);
}

void EngineGroup::ready(const std::string& id) {
  for (const auto& engine : engines_) engine->ready(id);
}

void EngineGroup::fail(const std::string& id, const std::string& message) {
  for (const auto& engine : engines_) engine->fail(id, message);
}

bool EngineGroup::abort(const std::string& id) {
  bool found = false;
  for (const auto& engine : engines_) found |= engine->abort(id);
  return found;
}

uint32_t EngineGroup::abort_all() {
  uint32_t n = 0;
  for (const auto& engine : engines_) n += engine->abort_all();
  return n;
}

// ---- the loops

asio::awaitable<void> EngineGroup::run() {
  std::vector<asio::awaitable<void>> loops;
  for (const auto& engine : engines_) loops.push_back(engine->run());
  co_await side_by_side(std::move(loops));
}

void EngineGroup::stop() {
  for (const auto& engine : engines_) engine->stop();
}

// ---- operations

asio::awaitable<void> EngineGroup::pause(PauseMode mode, bool clear_cache) {
  std::vector<asio::awaitable<void>> work;
  for (const auto& engine : engines_) work.push_back(engine->pause(mode, clear_cache));
  co_await side_by_side(std::move(work));
}

void EngineGroup::resume() {
  for (const auto& engine : engines_) engine->resume();
}

asio::awaitable<Result<void>> EngineGroup::sleep(SleepLevel level, PauseMode mode) {
  if (wave_) {
    // An engine that sleeps cannot take part, so the group comes to rest first.
    co_await pause(mode, false);
    co_await until_wave_ends();
  }
  std::vector<asio::awaitable<Result<void>>> work;
  for (const auto& engine : engines_) work.push_back(engine->sleep(level, mode));
  const std::vector<Result<void>> done = co_await side_by_side(std::move(work));
  for (const Result<void>& one : done)
    if (!one) co_return one;
  co_return Result<void>{};
}

asio::awaitable<Result<void>> EngineGroup::wake_up(WakeTags tags) {
  std::vector<asio::awaitable<Result<void>>> work;
  for (const auto& engine : engines_) work.push_back(engine->wake_up(tags));
  const std::vector<Result<void>> done = co_await side_by_side(std::move(work));
  for (const Result<void>& one : done)
    if (!one) co_return one;
  co_return Result<void>{};
}

asio::awaitable<bool> EngineGroup::reset_prefix_cache(bool reset_running) {
  std::vector<asio::awaitable<bool>> work;
  for (const auto& engine : engines_) work.push_back(engine->reset_prefix_cache(reset_running));
  const std::vector<bool> done = co_await side_by_side(std::move(work));
  co_return std::find(done.begin(), done.end(), false) == done.end();
}

bool EngineGroup::is_paused() const {
  return std::any_of(engines_.begin(), engines_.end(), [](const auto& engine) { return engine->is_paused(); });
}

bool EngineGroup::is_sleeping() const {
  return std::any_of(engines_.begin(), engines_.end(), [](const auto& engine) { return engine->is_sleeping(); });
}

SleepLevel EngineGroup::sleep_level() const {
  SleepLevel deepest = SleepLevel::pause;
  for (const auto& engine : engines_) deepest = std::max(deepest, engine->sleep_level());
  return deepest;
}

// ---- numbers

std::vector<Snapshot> EngineGroup::snapshots() const {
  std::vector<Snapshot> all;
  for (const auto& engine : engines_) all.push_back(engine->snapshot());
  return all;
}

bool EngineGroup::healthy() const {
  return std::all_of(engines_.begin(), engines_.end(), [](const auto& engine) { return engine->healthy(); });
}

// ---- lockstep

bool EngineGroup::may_step(uint32_t rank, bool unfinished, bool drained) {
  if (wave_->has_left(rank)) return false;
  if (!wave_->running()) {
    if (!unfinished) return false;
    begin_wave(wave_->current_wave());
  }
  if (wave_->may_step(rank)) return true;
  if (!drained) return false;
  settle(wave_->report(rank, unfinished));
  return wave_->may_step(rank);
}

void EngineGroup::begin_wave(uint32_t stamp) {
  const bool was_running = wave_->running();
  wave_->arrive(stamp);
  if (!was_running) wake_all();
}

void EngineGroup::settle(Wave::Agreement agreement) {
  if (agreement == Wave::Agreement::open) return;
  wake_all();
  if (agreement == Wave::Agreement::complete)
    for (asio::steady_timer* watcher : wave_watchers_) watcher->cancel();
}

void EngineGroup::wake_all() {
  for (const auto& engine : engines_) engine->wake();
}

asio::awaitable<void> EngineGroup::until_wave_ends() {
  const auto executor = co_await asio::this_coro::executor;
  asio::steady_timer ended(executor, asio::steady_timer::time_point::max());
  wave_watchers_.push_back(&ended);
  while (wave_->running()) co_await ended.async_wait(asio::as_tuple(asio::use_awaitable));
  std::erase(wave_watchers_, &ended);
}

}  // namespace heddle::engine
