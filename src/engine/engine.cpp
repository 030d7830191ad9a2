#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "engine/engine_impl.h"
#include "sched/admission.h"

namespace heddle::engine {
namespace {

TokenId find_primary_eos(const Config& config, const text::Tokenizer* tokenizer) {
  if (config.primary_eos) return *config.primary_eos;
  return tokenizer && !tokenizer->end_tokens().empty() ? tokenizer->end_tokens().front() : -1;
}

Refusal bad(std::string message) { return {Refusal::Kind::bad_request, std::move(message)}; }

Config complete(Config config, const text::Tokenizer* tokenizer) {
  if (config.vocab_size == 0 && tokenizer) config.vocab_size = static_cast<uint32_t>(tokenizer->vocab_size());
  return config;
}

}  // namespace

Engine::Impl::Impl(Config config, std::unique_ptr<ModelRunner> runner, std::shared_ptr<const text::Tokenizer> tokenizer)
    : config_(complete(std::move(config), tokenizer.get())),
      runner_(std::move(runner)),
      tokenizer_(std::move(tokenizer)),
      scheduler_(config_.scheduler),
      pipeline_(config_.pipeline_depth),
      outputs_(tokenizer_, find_primary_eos(config_, tokenizer_.get())) {
  HEDDLE_CHECK_OP(config_.pipeline_depth, <=, runner_->max_in_flight());
  delivered_.reserve(config_.scheduler.max_num_seqs);
}

void Engine::Impl::assert_loop() const {
#ifndef NDEBUG
  HEDDLE_CHECK(loop_thread_ == std::thread::id{} || loop_thread_ == std::this_thread::get_id());
#endif
}

std::optional<Refusal> Engine::Impl::check_open() const {
  if (!sickness_.empty()) return Refusal{Refusal::Kind::stopping, "the engine is out of service: " + sickness_};
  if (phase_ != Phase::open) return Refusal{Refusal::Kind::stopping, "the engine is shutting down"};
  return std::nullopt;
}

std::optional<Refusal> Engine::Impl::check_tokens(const std::vector<TokenId>& tokens) const {
  const uint32_t vocab = config_.vocab_size == 0 ? uint32_t{INT32_MAX} : config_.vocab_size;
  if (tokens.empty()) return bad("prompt: must have at least one token");
  for (size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] < 0 || static_cast<uint32_t>(tokens[i]) >= vocab)
      return bad(fmt::format("prompt: token {} at index {} is outside the vocabulary of {}", tokens[i], i, vocab));
  return std::nullopt;
}

std::optional<Refusal> Engine::Impl::check_fits(uint64_t n_prompt) const {
  const sched::Config& limits = config_.scheduler;
  const sched::BlockDemand demand = sched::demand_of(static_cast<uint32_t>(n_prompt), limits);
  if (!demand.never_fits()) return std::nullopt;
  const uint64_t size = limits.block_size;
  return Refusal{Refusal::Kind::never_fits,
                 fmt::format("the prompt of {} tokens needs {} blocks, {} exist (room for {} tokens is needed, for {} "
                             "available)",
                             n_prompt, demand.needed, demand.available, demand.needed * size, demand.available * size),
                 demand.needed, demand.available};
}

std::optional<Refusal> Engine::Impl::check(const Request& request) const {
  if (std::optional<Refusal> closed = check_open()) return closed;
  if (live_.contains(request.id))
    return Refusal{Refusal::Kind::duplicate_id, fmt::format("request id {} is in use", request.id)};
  if (request.n == 0) return bad("n: must be at least 1");
  if (request.max_tokens == 0) return bad("max_tokens: must be at least 1");
  if (!tokenizer_ && !request.stop.strings.empty()) return bad("stop: this engine has no tokenizer and sees no text");
  for (const std::string& stop : request.stop.strings)
    if (stop.empty()) return bad("stop: a stop string must not be empty");
  if (request.session && request.n > 1) return bad("n: must be 1 in a session");
  if (request.session && !request.stop.strings.empty()) return bad("stop: a session takes no stop strings");
  if (request.session && request.make_masker) return bad("grammar: a session takes none");
  if (request.make_masker && config_.vocab_size == 0) return bad("grammar: this engine knows no vocabulary size");
  if (std::optional<Refusal> wrong = check_tokens(request.prompt)) return wrong;
  const uint32_t vocab = config_.vocab_size == 0 ? uint32_t{INT32_MAX} : config_.vocab_size;
  const auto outside = [vocab](TokenId id) { return id < 0 || static_cast<uint32_t>(id) >= vocab; };
  for (const auto& [id, bias] : request.sampling.logit_bias)
    if (outside(id)) return bad(fmt::format("logit_bias: token {} is outside the vocabulary of {}", id, vocab));
  for (const TokenId id : request.stop.token_ids)
    if (outside(id)) return bad(fmt::format("stop_token_ids: token {} is outside the vocabulary of {}", id, vocab));
  const uint32_t longest = config_.scheduler.max_model_len;
  if (request.prompt.size() + request.max_tokens > longest)
    return bad(fmt::format("max_tokens: {} prompt tokens and {} output tokens exceed the model length of {}",
                           request.prompt.size(), request.max_tokens, longest));
  return check_fits(request.prompt.size());
}

void Engine::Impl::open(Request request, std::shared_ptr<OutputSink> sink) {
  auto live = std::make_unique<LiveRequest>();
  live->request = std::move(request);
  live->sink = std::move(sink);
  live->times.queued = now();
  const Request& r = live->request;
  live->usage.n_prompt = static_cast<uint32_t>(r.prompt.size());
  live->n_open = live->n_unretired = r.n;
  const auto domain = std::make_shared<const sched::PrefixDomain>(
      sched::PrefixDomain{config_.scheduler.model_fingerprint, r.cache_salt});
  live->n_uncached = live->usage.n_prompt - scheduler_.cached_tokens(r.prompt, domain);
  queued_tokens_ += live->usage.n_prompt;
  uncached_tokens_ += live->n_uncached;
  std::vector<sched::Sequence*> family;
  for (uint32_t i = 0; i < r.n; ++i) {
    LiveSequence& one = *live->sequences.emplace_back(std::make_unique<LiveSequence>());
    one.request = live.get();
    one.index = i;
    one.sampling = r.sampling;
    one.sampling.seed += i;
    if (r.make_masker) {
      one.masker = r.make_masker();
      one.mask.resize((config_.vocab_size + 31) / 32);
    }
    sched::Sequence& sequence = one.sequence;
    sequence.id = SeqId(next_seq_id_++);
    sequence.n_prompt = live->usage.n_prompt;
    sequence.n_limit = sched::limit_of(sequence.n_prompt, r.max_tokens, config_.scheduler);
    if (i + 1 < r.n)
      sequence.tokens = r.prompt;
    else
      sequence.tokens = std::move(live->request.prompt);
    sequence.domain = domain;
    sequence.sampling = &one.sampling;
    sequence.masked = one.masker != nullptr;
    sequence.priority = r.priority;
    sequence.owner = &one;
    outputs_.open(one);
    family.push_back(&sequence);
  }
  family.front()->deferral = r.deferral;
  scheduler_.add_family(family, r.tenant);
  if (r.deadlines.total || r.deadlines.first_token) timed_.push_back(live.get());
  if (r.session) {
    live->session = LiveRequest::SessionState::turn;
    sessions_.push_back(live.get());
  }
  const std::string& id = live->request.id;
  live_.emplace(id, std::move(live));
}

void Engine::Impl::count_ends(FinishReason reason, uint64_t n) {
  switch (reason) {
    case FinishReason::stop:
      counts_.finished_stop += n;
      break;
    case FinishReason::length:
      counts_.finished_length += n;
      break;
    case FinishReason::abort:
      counts_.finished_abort += n;
      break;
    case FinishReason::error:
      counts_.finished_error += n;
      break;
  }
}

// A sequence's end in the accounts; its output is the processor's affair. Of a session, the turn under way ends, and
// those that were still to come.
void Engine::Impl::settle(LiveSequence& live) {
  LiveRequest& request = *live.request;
  count_ends(live.finish->reason, (request.has_turn() ? 1 : 0) + request.turns.size());
  request.turns.clear();
  const MonotonicTime scheduled = live.sequence.scheduled;
  const bool earlier = request.times.scheduled == MonotonicTime{} || scheduled < request.times.scheduled;
  if (scheduled != MonotonicTime{} && earlier) request.times.scheduled = scheduled;
  if (live.finish->deadline_exceeded)
    ++(scheduled == MonotonicTime{} ? counts_.deadlines_queued : counts_.deadlines_running);
  if (live.index == 0) request.usage.n_cached = live.sequence.n_cached;
  request.usage.n_preemptions += live.sequence.n_preemptions - request.n_preemptions_before;
  scheduler_.finish(live.sequence);
  if (std::all_of(request.sequences.begin(), request.sequences.end(), [](const auto& s) { return s->finish; }))
    settle_queue(request);
}

void Engine::Impl::settle_queue(LiveRequest& request) {
  if (!request.counted_queued) return;
  request.counted_queued = false;
  queued_tokens_ -= request.usage.n_prompt;
  uncached_tokens_ -= request.n_uncached;
}

void Engine::Impl::end(LiveSequence& live, Finish finish) {
  if (live.finish) {
    // Of a session, the turn has just ended and the sink does not know yet: it will hear that, and that all is over.
    LiveRequest& request = *live.request;
    if (request.session == LiveRequest::SessionState::none || live.sequence.is_ended()) return;
    count_ends(finish.reason, request.turns.size());
    request.turns.clear();
    request.closed = true;
    scheduler_.finish(live.sequence);
    return;
  }
  outputs_.end(live, std::move(finish));
  settle(live);
}

void Engine::Impl::end_all(LiveRequest& request, const Finish& finish) {
  for (const auto& live : request.sequences) end(*live, finish);
}

bool Engine::Impl::abort(const std::string& id) {
  const auto found = live_.find(id);
  if (found == live_.end()) return false;
  end_all(*found->second, {.reason = FinishReason::abort});
  wake();
  return true;
}

uint32_t Engine::Impl::abort_all() {
  uint32_t n = 0;
  for (const auto& [id, request] : live_) {
    n += std::any_of(request->sequences.begin(), request->sequences.end(), [](const auto& s) { return !s->finish; });
    end_all(*request, {.reason = FinishReason::abort});
  }
  wake();
  return n;
}

void Engine::Impl::reap() {
  for (sched::Sequence* sequence : scheduler_.retired())
    --static_cast<LiveSequence*>(sequence->owner)->request->n_unretired;
  scheduler_.retired().clear();
  for (const LiveRequest* request : outputs_.ended()) {
    std::erase(timed_, request);
    std::erase(sessions_, request);
    const auto found = live_.find(request->request.id);
    landing_.push_back(std::move(found->second));
    live_.erase(found);  // the id may be used again
  }
  outputs_.ended().clear();
  std::erase_if(landing_, [](const auto& request) { return request->n_unretired == 0; });
}

void Engine::Impl::wake() {
  woken_ = true;
  if (idle_) idle_->cancel();
}

Engine::Engine(Config config, std::unique_ptr<ModelRunner> runner, std::shared_ptr<const text::Tokenizer> tokenizer)
    : impl_(std::make_unique<Impl>(std::move(config), std::move(runner), std::move(tokenizer))) {}

Engine::~Engine() = default;

Result<void, Refusal> Engine::submit(Request request, std::shared_ptr<OutputSink> sink) {
  impl_->assert_loop();
  impl_->counts_.submitted += request.n;
  if (std::optional<Refusal> refusal = impl_->check(request)) {
    impl_->counts_.rejected += request.n;
    return tl::unexpected(std::move(*refusal));
  }
  impl_->open(std::move(request), std::move(sink));
  impl_->wake();
  return {};
}

Result<void, Refusal> Engine::append(const std::string& id, Turn turn) {
  impl_->assert_loop();
  const auto found = impl_->live_.find(id);
  std::optional<Refusal> refusal = impl_->check_open();
  if (!refusal && found == impl_->live_.end())
    refusal = Refusal{Refusal::Kind::unknown_id, fmt::format("there is no session {}", id)};
  if (!refusal) refusal = impl_->check_turn(*found->second, turn);
  if (refusal) {
    ++impl_->counts_.submitted;
    ++impl_->counts_.rejected;
    return tl::unexpected(std::move(*refusal));
  }
  impl_->append(*found->second, std::move(turn));
  impl_->wake();
  return {};
}

void Engine::close_session(const std::string& id) {
  impl_->assert_loop();
  const auto found = impl_->live_.find(id);
  if (found != impl_->live_.end()) impl_->close_session(*found->second);
  impl_->wake();
}

void Engine::ready(const std::string& id) {
  impl_->assert_loop();
  const auto found = impl_->live_.find(id);
  if (found == impl_->live_.end()) return;
  sched::Sequence& first = found->second->sequences.front()->sequence;
  if (first.is_queued() && first.deferral != sched::Deferral::none && found->second->has_turn())
    impl_->scheduler_.defer(first, sched::Deferral::none);
  impl_->wake();
}

void Engine::fail(const std::string& id, std::string message) {
  impl_->assert_loop();
  const auto found = impl_->live_.find(id);
  if (found == impl_->live_.end()) return;
  impl_->end_all(*found->second, {.reason = FinishReason::error, .message = std::move(message)});
  impl_->wake();
}

bool Engine::abort(const std::string& id) {
  impl_->assert_loop();
  return impl_->abort(id);
}

uint32_t Engine::abort_all() {
  impl_->assert_loop();
  return impl_->abort_all();
}

bool Engine::is_live(const std::string& id) const { return impl_->live_.contains(id); }

boost::asio::awaitable<void> Engine::run() { return impl_->run(); }

void Engine::stop() {
  impl_->assert_loop();
  impl_->phase_ = Impl::Phase::stopping;
  for (LiveRequest* session : impl_->sessions_) impl_->close_session(*session);  // input would be new work
  impl_->wake();
}

void Engine::join_lockstep(Lockstep& lockstep, uint32_t rank) {
  impl_->lockstep_ = &lockstep;
  impl_->rank_ = rank;
}

void Engine::wake() { impl_->wake(); }

boost::asio::awaitable<void> Engine::pause(PauseMode mode, bool clear_cache) { return impl_->pause(mode, clear_cache); }
void Engine::resume() { impl_->resume(); }
boost::asio::awaitable<Result<void>> Engine::sleep(SleepLevel level, PauseMode mode) {
  return impl_->sleep(level, mode);
}
boost::asio::awaitable<Result<void>> Engine::wake_up(WakeTags tags) { return impl_->wake_up(tags); }
boost::asio::awaitable<bool> Engine::reset_prefix_cache(bool reset_running) {
  return impl_->reset_prefix_cache(reset_running);
}
bool Engine::is_paused() const { return impl_->wanted_pause_ != sched::Pause::none; }
SleepLevel Engine::sleep_level() const { return impl_->sleep_level_; }
bool Engine::is_sleeping() const { return is_paused() || !impl_->memory_is_here(); }

Snapshot Engine::snapshot() const {
  impl_->assert_loop();
  const sched::Scheduler& scheduler = impl_->scheduler_;
  const sched::Counters& counters = scheduler.counters();
  const sched::BlockPool& pool = scheduler.pool();
  Snapshot s = impl_->counts_;
  s.running = scheduler.n_running();
  s.waiting = scheduler.n_waiting();
  s.deferred = scheduler.n_deferred();
  s.parked_sessions = scheduler.n_parked();
  if (is_sleeping())
    s.sleep = impl_->memory_is_here()                      ? stats::SleepState::paused
              : impl_->sleep_level_ == SleepLevel::weights ? stats::SleepState::weights_offloaded
                                                           : stats::SleepState::discard_all;
  s.in_flight = impl_->pipeline_.size();
  s.blocks_total = pool.n_total();
  s.blocks_held = pool.n_held();
  s.blocks_cached = pool.n_cached();
  s.blocks_free = pool.n_free() - pool.n_cached();
  s.discarded_tokens = counters.n_discarded_tokens;
  s.preemptions = counters.n_preemptions;
  s.steps = counters.n_steps;
  s.prefix_queries = counters.first.queries;
  s.prefix_hits = counters.first.hits;
  s.forks = counters.n_forks;
  s.copied_blocks = counters.n_copied_blocks;
  s.merged_blocks = scheduler.n_merged_blocks();
  s.cache_resets = counters.n_cache_resets;
  s.evicted_sessions = counters.n_evicted_sessions;
  return s;
}

Load Engine::load() const {
  impl_->assert_loop();
  const sched::Scheduler& scheduler = impl_->scheduler_;
  const sched::BlockPool& pool = scheduler.pool();
  Load load;
  load.running = scheduler.n_running();
  load.waiting = scheduler.n_waiting();
  load.deferred = scheduler.queue().n_deferred() + scheduler.n_parked();
  load.kv_usage = static_cast<double>(pool.n_held()) / std::max(1u, pool.n_total());
  load.queued_tokens = impl_->queued_tokens_;
  load.uncached_tokens = impl_->uncached_tokens_;
  for (const sched::Sequence* s : scheduler.running()) {
    const uint32_t left = std::max(1u, s->n_limit - std::min(s->n_limit, s->n_known()));
    if (load.soonest_end == 0 || left < load.soonest_end) load.soonest_end = left;
  }
  load.rates = impl_->config_.rates ? *impl_->config_.rates : impl_->meter_.rates();
  return load;
}

uint32_t Engine::cached_tokens(std::span<const TokenId> prompt, const std::string& cache_salt) const {
  const auto domain = std::make_shared<const sched::PrefixDomain>(
      sched::PrefixDomain{impl_->config_.scheduler.model_fingerprint, cache_salt});
  return impl_->scheduler_.cached_tokens(prompt, domain);
}

bool Engine::healthy() const { return impl_->sickness_.empty(); }

MonotonicTime Engine::last_step() const { return impl_->last_step_; }

std::vector<std::string> Engine::violations() const {
  std::vector<std::string> lines = sched::violations(impl_->scheduler_.view());
  const Snapshot s = snapshot();
  uint64_t n_live = 0;  // sequences without a reason yet
  for (const auto& [id, request] : impl_->live_) {
    for (const auto& live : request->sequences) n_live += !live->finish.has_value() && request->has_turn();
    n_live += request->turns.size();
  }
  const uint64_t n_ended = s.finished_stop + s.finished_length + s.finished_abort + s.finished_error;
  if (s.submitted != s.rejected + n_ended + n_live)
    lines.push_back(
        fmt::format("one-end: {} submitted, {} rejected, {} ended, {} live", s.submitted, s.rejected, n_ended, n_live));
  return lines;
}

}  // namespace heddle::engine
