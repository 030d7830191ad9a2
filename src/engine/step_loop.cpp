// The engine's turns. A turn fills the pipeline, hands out what the last commit gave, and waits for the oldest step:
//
//   drop     what is too late for its client
//   fill     plan, launch, sample, while there is room and something to compute     (filling comes before draining)
//   deliver  detokenise and call sinks: the device is already at work on the next step
//   wait     for the oldest step, in order; other handlers of the loop run meanwhile
//   commit   tokens appended, ends decided, blocks released
//
// Without work the loop sleeps until submit, abort or stop wake it, or deadlines are to be looked at.
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <fmt/format.h>

#include "base/check.h"
#include "base/log.h"
#include "engine/engine_impl.h"
#include "sched/admission.h"

namespace heddle::engine {

namespace asio = boost::asio;

namespace {
// How often deadlines are looked at while nothing is computed.
constexpr auto kDeadlineSweep = std::chrono::milliseconds(10);
}  // namespace

asio::awaitable<void> Engine::Impl::run() {
  const auto executor = co_await asio::this_coro::executor;
  loop_thread_ = std::this_thread::get_id();
  asio::steady_timer idle(executor);
  idle_ = &idle;
  for (;;) {
    woken_ = false;
    drop_late();
    fill();
    deliver();
#ifndef NDEBUG
    for (const std::string& line : sched::violations(scheduler_.view()))
      check_failed(__FILE__, __LINE__, "invariants", line);
#endif
    if (pipeline_.empty()) {
      notify();
      const bool may = may_step();
      if (woken_ || (may && fail_stuck_head())) continue;
      if (lockstep_ && may) {
        runner_->dummy_step();
        ++counts_.dummy_steps;
        lockstep_->stepped(rank_);
        co_await asio::post(asio::use_awaitable);
        continue;
      }
      if (phase_ == Phase::stopping && live_.empty() && !(lockstep_ && lockstep_->in_wave(rank_))) break;
      if (timed_.empty())
        idle.expires_at(asio::steady_timer::time_point::max());
      else
        idle.expires_after(kDeadlineSweep);
      co_await idle.async_wait(asio::as_tuple(asio::use_awaitable));
      continue;
    }
    co_await asio::post(asio::use_awaitable);  // a runner that is done at once must not starve the rest of the loop
    const Result<StepResult, Fault> result = co_await runner_->wait(pipeline_.oldest().ticket);
    if (result)
      commit(*result);
    else
      take_back(result.error());
  }
  idle_ = nullptr;
  if (lockstep_) lockstep_->leave(rank_);
  notify();
}

bool Engine::Impl::may_step() {
  return !lockstep_ || (memory_is_here() && lockstep_->may_step(rank_, has_unfinished(), pipeline_.empty()));
}

bool Engine::Impl::has_unfinished() const {
  if (scheduler_.pause() == sched::Pause::all) return false;
  if (scheduler_.pause() == sched::Pause::admission) return !nothing_begun();
  return scheduler_.n_running() > 0 || scheduler_.n_waiting() > scheduler_.n_deferred();
}

void Engine::Impl::fill() {
  while (sample_newest() && pipeline_.has_room() && may_step()) {
    Step& step = pipeline_.next();
    if (!scheduler_.plan(step.plan, now())) return;
    pipeline_.push();
    step.advance(StepState::planned);
    step.ticket = runner_->launch(step.plan);
    step.advance(StepState::forwarded);
    if (lockstep_) lockstep_->stepped(rank_);
  }
}

// The sampling half of the newest step, unless it was done. It is held back while the mask of one of its rows depends
// on a token in flight; nothing is launched meanwhile, since the next forward needs what this one samples.
bool Engine::Impl::sample_newest() {
  if (pipeline_.empty() || pipeline_.newest().state != StepState::forwarded) return true;
  Step& step = pipeline_.newest();
  step.masks.clear();
  for (const sched::SeqStep& s : step.plan.seqs)
    if (s.masked && s.sequence->n_placeholders > 1) return false;
  for (const sched::SeqStep& s : step.plan.seqs) {
    if (!s.masked) continue;
    LiveSequence& live = *static_cast<LiveSequence*>(s.sequence->owner);
    live.masker->fill(live.mask);
    step.masks.emplace_back(live.mask);
  }
  runner_->sample(step.ticket, {step.masks});
  step.advance(StepState::sampled);
  return true;
}

void Engine::Impl::deliver() {
  outputs_.flush();
  continue_sessions();
  reap();
}

void Engine::Impl::measure(const sched::StepPlan& plan, const StepResult& result) {
  uint32_t n_prompt_rows = 0;
  for (const sched::SeqStep& s : plan.seqs)
    if (s.n_tokens > 1 || s.first_position < s.sequence->n_prompt) n_prompt_rows += s.n_tokens;
  meter_.add_step(n_prompt_rows, plan.n_rows - n_prompt_rows, result.end - result.begin);
}

void Engine::Impl::commit(const StepResult& result) {
  Step& step = pipeline_.oldest();
  last_step_ = now();
  measure(step.plan, result);
  delivered_.clear();
  scheduler_.commit(step.plan, result.seqs, delivered_);
  step.advance(StepState::done);
  pipeline_.pop_oldest();
  for (const sched::Delivered& delivered : delivered_) {
    LiveSequence& live = *static_cast<LiveSequence*>(delivered.sequence->owner);
    const bool first = live.sequence.n_generated() == 1;
    const bool ended = outputs_.append(live, delivered.token, last_step_);
    if (delivered.token >= 0) {
      ++counts_.generation_tokens;
      if (first) {
        counts_.prompt_tokens += live.sequence.n_prompt;
        settle_queue(*live.request);
      }
    }
    if (!ended) continue;
    const FinishReason reason = live.finish->reason;
    if (live.request->goes_on() && (reason == FinishReason::stop || reason == FinishReason::length))
      end_turn(live);
    else
      settle(live);
  }
}

// Everything in flight is void. The plans are taken back newest first; then those end whom the fault concerns, and the
// next plan computes the rest again.
void Engine::Impl::take_back(const Fault& fault) {
  HEDDLE_CHECK_OP(fault.ticket.number, ==, pipeline_.oldest().ticket.number);
  log::error("device fault at step {}: {}", pipeline_.oldest().plan.step, fault.message);
  std::vector<LiveSequence*> concerned;
  bool guilty_found = false;
  while (!pipeline_.empty()) {
    const sched::StepPlan& plan = pipeline_.newest().plan;
    for (const sched::SeqStep& step : plan.seqs) {
      concerned.push_back(static_cast<LiveSequence*>(step.sequence->owner));
      guilty_found |= step.id == fault.guilty;
    }
    scheduler_.rollback(plan);
    pipeline_.pop_newest();
  }
  scheduler_.forget_slots();
  const auto fail = [&](LiveSequence& live) { end(live, {.reason = FinishReason::error, .message = fault.message}); };
  if (fault.scope == Fault::Scope::device) {
    sickness_ = fault.message;
    if (lockstep_) lockstep_->leave(rank_);
    for (const auto& [id, request] : live_)
      for (const auto& live : request->sequences) fail(*live);
    return;
  }
  const bool one = fault.scope == Fault::Scope::sequence && guilty_found;
  for (LiveSequence* live : concerned)
    if (!one || live->sequence.id == fault.guilty) fail(*live);
}

// forward-progress: what can never be computed fails with a reason instead of waiting for ever.
bool Engine::Impl::fail_stuck_head() {
  sched::Sequence* head = scheduler_.stuck_head();
  if (!head) return false;
  const sched::BlockDemand demand = sched::demand_of(head->n_known(), config_.scheduler);
  const std::string message = fmt::format("cannot be scheduled: needs {} blocks, {} exist, {} are free", demand.needed,
                                          demand.available, scheduler_.pool().n_free());
  log::error("sequence {} {}", head->id.value, message);
  end(*static_cast<LiveSequence*>(head->owner), {.reason = FinishReason::error, .message = message});
  return true;
}

}  // namespace heddle::engine
