// Deadlines: what is too late for its client is not computed. Looked at before each plan.
#include <fmt/format.h>

#include <algorithm>

#include "engine/engine_impl.h"

namespace heddle::engine {
namespace {

// A waiting request is given up only when it could not even make it at this multiple of the measured rate.
constexpr double kBenefitOfDoubt = 2;

}  // namespace

// For everybody in the queue, in one pass: rows that are computed before its first token, that is, what prompts under
// way still miss, everybody before it in its line, and its own.
void Engine::Impl::count_rows_before() {
  uint64_t n_running = 0;
  for (const sched::Sequence* s : scheduler_.running())
    if (s->is_prefilling()) n_running += s->n_prompt - s->n_computed;
  const sched::WaitingQueue& queue = scheduler_.queue();
  for (uint32_t line = 0; line < queue.n_lines(); ++line) {
    uint64_t n = n_running;
    for (const sched::Sequence& s : queue.ready(line)) {
      LiveRequest& request = *static_cast<LiveSequence*>(s.owner)->request;
      n += s.state == sched::SequenceState::preempted ? s.n_known() : request.n_uncached;
      request.rows_before = n;
    }
  }
}

void Engine::Impl::drop_late() {
  if (timed_.empty()) return;
  const MonotonicTime time = now();
  const Rates rates = config_.rates ? *config_.rates : meter_.rates();
  if (rates.prefill > 0) count_rows_before();
  std::vector<LiveRequest*> late;
  std::vector<std::string> why;
  for (LiveRequest* request : timed_) {
    if (!request->has_turn()) continue;
    const Deadlines& deadlines = request->request.deadlines;
    const bool answered = request->times.first_token != MonotonicTime{};
    const auto passed = [&](std::string_view which, MonotonicTime deadline) {
      late.push_back(request);
      why.push_back(fmt::format("the {} deadline passed {:.0f} ms ago", which, seconds(time - deadline) * 1e3));
    };
    if (deadlines.total && time >= *deadlines.total) {
      passed("request's", *deadlines.total);
      continue;
    }
    if (deadlines.first_token && !answered && time >= *deadlines.first_token) {
      passed("first token's", *deadlines.first_token);
      continue;
    }
    const sched::Sequence& first = request->sequences.front()->sequence;
    if (first.state != sched::SequenceState::waiting || first.deferral != sched::Deferral::none) continue;
    const MonotonicTime deadline =
        std::min(deadlines.total.value_or(MonotonicTime::max()), deadlines.first_token.value_or(MonotonicTime::max()));
    const double predicted = seconds_to_first_token(rates, request->rows_before, kBenefitOfDoubt);
    if (predicted <= seconds(deadline - time)) continue;
    late.push_back(request);
    why.push_back(
        fmt::format("the first token is {:.0f} ms away at {:g} times the measured rate, the deadline {:.0f} ms",
                    predicted * 1e3, kBenefitOfDoubt, seconds(deadline - time) * 1e3));
  }
  for (size_t i = 0; i < late.size(); ++i)
    end_all(*late[i], {.reason = FinishReason::abort, .message = why[i], .deadline_exceeded = true});
}

}  // namespace heddle::engine
