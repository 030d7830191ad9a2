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

std::optional<Refusal> Engine::Impl::check(const Request& request) const {
  using Kind = Refusal::Kind;
  const auto bad = [](std::string message) { return Refusal{Kind::bad_request, std::move(message)}; };
  if (!sickness_.empty()) return Refusal{Kind::stopping, "the engine is out of service: " + sickness_};
  if (phase_ != Phase::open) return Refusal{Kind::stopping, "the engine is shutting down"};
  if (live_.contains(request.id))
    return Refusal{Kind::duplicate_id, fmt::format("request id {} is in use", request.id)};
  if (request.prompt.empty()) return bad("prompt: must have at least one token");
  if (request.n == 0) return bad("n: must be at least 1");
  if (request.max_tokens == 0) return bad("max_tokens: must be at least 1");
  if (!tokenizer_ && !request.stop.strings.empty()) return bad("stop: this engine has no tokenizer and sees no text");
  for (const std::string& stop : request.stop.strings)
    if (stop.empty()) return bad("stop: a stop string must not be empty");
  const uint32_t vocab = config_.vocab_size == 0 ? uint32_t{INT32_MAX} : config_.vocab_size;
  const auto outside = [vocab](TokenId id) { return id < 0 || static_cast<uint32_t>(id) >= vocab; };
  for (size_t i = 0; i < request.prompt.size(); ++i)
    if (outside(request.prompt[i]))
      return bad(
          fmt::format("prompt: token {} at index {} is outside the vocabulary of {}", request.prompt[i], i, vocab));
  for (const auto& [id, bias] : request.sampling.logit_bias)
    if (outside(id)) return bad(fmt::format("logit_bias: token {} is outside the vocabulary of {}", id, vocab));
  for (const TokenId id : request.stop.token_ids)
    if (outside(id)) return bad(fmt::format("stop_token_ids: token {} is outside the vocabulary of {}", id, vocab));

  const sched::Config& limits = config_.scheduler;
  if (request.prompt.size() + request.max_tokens > limits.max_model_len)
    return bad(fmt::format("max_tokens: {} prompt tokens and {} output tokens exceed the model length of {}",
                           request.prompt.size(), request.max_tokens, limits.max_model_len));
  const sched::BlockDemand demand = sched::demand_of(static_cast<uint32_t>(request.prompt.size()), limits);
  if (demand.never_fits())
    return Refusal{Kind::never_fits,
                   fmt::format("the prompt of {} tokens needs {} blocks, {} exist", request.prompt.size(),
                               demand.needed, demand.available),
                   demand.needed, demand.available};
  return std::nullopt;
}

void Engine::Impl::open(Request request, std::shared_ptr<OutputSink> sink) {
  auto live = std::make_unique<LiveRequest>();
  live->request = std::move(request);
  live->sink = std::move(sink);
  live->times.queued = Monotonic::now();
  const Request& r = live->request;
  live->usage.n_prompt = static_cast<uint32_t>(r.prompt.size());
  live->n_open = live->n_unretired = r.n;
  const auto domain = std::make_shared<const sched::PrefixDomain>(
      sched::PrefixDomain{config_.scheduler.model_fingerprint, r.cache_salt});
  for (uint32_t i = 0; i < r.n; ++i) {
    LiveSequence& one = *live->sequences.emplace_back(std::make_unique<LiveSequence>());
    one.request = live.get();
    one.index = i;
    one.sampling = r.sampling;
    one.sampling.seed += i;
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
    sequence.owner = &one;
    outputs_.open(one);
    scheduler_.add(sequence);
  }
  const std::string& id = live->request.id;
  live_.emplace(id, std::move(live));
}

// A sequence's end in the accounts; its output is the processor's affair.
void Engine::Impl::settle(LiveSequence& live) {
  switch (live.finish->reason) {
    case FinishReason::stop:
      ++counts_.finished_stop;
      break;
    case FinishReason::length:
      ++counts_.finished_length;
      break;
    case FinishReason::abort:
      ++counts_.finished_abort;
      break;
    case FinishReason::error:
      ++counts_.finished_error;
      break;
  }
  LiveRequest& request = *live.request;
  const MonotonicTime scheduled = live.sequence.scheduled;
  const bool earlier = request.times.scheduled == MonotonicTime{} || scheduled < request.times.scheduled;
  if (scheduled != MonotonicTime{} && earlier) request.times.scheduled = scheduled;
  if (live.index == 0) request.usage.n_cached = live.sequence.n_cached;
  scheduler_.finish(live.sequence);
}

void Engine::Impl::end(LiveSequence& live, Finish finish) {
  if (live.finish) return;
  outputs_.end(live, std::move(finish));
  settle(live);
}

void Engine::Impl::abort(const std::string& id) {
  const auto found = live_.find(id);
  if (found == live_.end()) return;
  for (const auto& live : found->second->sequences) end(*live, {.reason = FinishReason::abort});
  wake();
}

void Engine::Impl::abort_all() {
  for (const auto& [id, request] : live_)
    for (const auto& live : request->sequences) end(*live, {.reason = FinishReason::abort});
  wake();
}

void Engine::Impl::reap() {
  for (sched::Sequence* sequence : scheduler_.retired())
    --static_cast<LiveSequence*>(sequence->owner)->request->n_unretired;
  scheduler_.retired().clear();
  for (const LiveRequest* request : outputs_.ended()) {
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

void Engine::abort(const std::string& id) {
  impl_->assert_loop();
  impl_->abort(id);
}

boost::asio::awaitable<void> Engine::run() { return impl_->run(); }

void Engine::stop() {
  impl_->assert_loop();
  impl_->phase_ = Impl::Phase::stopping;
  impl_->wake();
}

void Engine::abort_all() {
  impl_->assert_loop();
  impl_->abort_all();
}

Snapshot Engine::snapshot() const {
  impl_->assert_loop();
  const sched::Scheduler& scheduler = impl_->scheduler_;
  const sched::Counters& counters = scheduler.counters();
  const sched::BlockPool& pool = scheduler.pool();
  Snapshot s = impl_->counts_;
  s.running = scheduler.n_running();
  s.waiting = scheduler.n_waiting();
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
  return s;
}

bool Engine::healthy() const { return impl_->sickness_.empty(); }

MonotonicTime Engine::last_step() const { return impl_->last_step_; }

std::vector<std::string> Engine::violations() const {
  std::vector<std::string> lines = sched::violations(impl_->scheduler_.view());
  const Snapshot s = snapshot();
  uint64_t n_live = 0;  // sequences without a reason yet
  for (const auto& [id, request] : impl_->live_)
    for (const auto& live : request->sequences) n_live += !live->finish.has_value();
  const uint64_t n_ended = s.finished_stop + s.finished_length + s.finished_abort + s.finished_error;
  if (s.submitted != s.rejected + n_ended + n_live)
    lines.push_back(
        fmt::format("one-end: {} submitted, {} rejected, {} ended, {} live", s.submitted, s.rejected, n_ended, n_live));
  return lines;
}

}  // namespace heddle::engine
