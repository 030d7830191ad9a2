// Sessions: requests that may be given more input. Their KV stays between turns (scheduler: parked).
#include <fmt/format.h>

#include <algorithm>

#include "engine/engine_impl.h"
#include "sched/admission.h"

namespace heddle::engine {

using SessionState = LiveRequest::SessionState;

// The longest prompt that this turn can have is known now: every answer before it has a limit.
std::optional<Refusal> Engine::Impl::check_turn(const LiveRequest& request, const Turn& turn) const {
  const auto refuse = [](std::string message) { return Refusal{Refusal::Kind::bad_request, std::move(message)}; };
  if (request.session == SessionState::none) return refuse(fmt::format("request {} is no session", request.request.id));
  const sched::Sequence& sequence = request.sequences.front()->sequence;
  if (request.closed || sequence.is_ended())
    return refuse(fmt::format("session {} takes no more input", request.request.id));
  if (turn.max_tokens == 0) return refuse("max_tokens: must be at least 1");
  if (std::optional<Refusal> wrong = check_tokens(turn.tokens)) return wrong;
  const bool unplanned = sequence.state == sched::SequenceState::waiting;
  const bool answering = request.has_turn() && !unplanned;
  uint64_t n_prompt = answering ? sequence.n_limit - 1 : sequence.n_known();
  for (const auto& pending : request.turns) n_prompt += pending.turn.tokens.size() + pending.turn.max_tokens - 1;
  n_prompt += turn.tokens.size();
  if (n_prompt + turn.max_tokens > config_.scheduler.max_model_len)
    return refuse(
        fmt::format("max_tokens: {} tokens so far (at most) and {} output tokens exceed the model length of {}",
                    n_prompt, turn.max_tokens, config_.scheduler.max_model_len));
  return check_fits(n_prompt);
}

void Engine::Impl::append(LiveRequest& request, Turn turn) {
  LiveSequence& live = *request.sequences.front();
  sched::Sequence& sequence = live.sequence;
  if (sequence.state != sched::SequenceState::waiting) {
    ++counts_.submitted;
    request.turns.push_back({std::move(turn), now()});
    return;
  }
  // Nothing of it was computed yet: the prompt grows.
  if (turn.sampling) {
    live.sampling = std::move(*turn.sampling);
    outputs_.open(live);  // its rules refer to the sampling's end tokens
  }
  const auto n = static_cast<uint32_t>(turn.tokens.size());
  scheduler_.extend(sequence, turn.tokens, sched::limit_of(sequence.n_known() + n, turn.max_tokens, config_.scheduler));
  request.usage.n_prompt += n;
  request.n_uncached += n;
  queued_tokens_ += n;
  uncached_tokens_ += n;
}

void Engine::Impl::close_session(LiveRequest& request) {
  if (request.session == SessionState::none || request.closed) return;
  request.closed = true;
  LiveSequence& live = *request.sequences.front();
  if (!request.turns.empty()) return;
  if (request.session == SessionState::between)
    end(live, {.reason = FinishReason::stop});
  else if (live.finish && !live.sequence.is_ended())
    scheduler_.finish(live.sequence);  // its last turn has ended, and the flush will say so
}

// The turn's answer is complete; a turn that may be followed by another reports stop, whatever ended it.
void Engine::Impl::end_turn(LiveSequence& live) {
  LiveRequest& request = *live.request;
  live.finish->reason = FinishReason::stop;
  count_ends(FinishReason::stop, 1);
  request.times.scheduled = live.sequence.scheduled;
  request.usage.n_cached = live.sequence.n_cached;
  request.usage.n_preemptions = live.sequence.n_preemptions - request.n_preemptions_before;
  std::erase(timed_, &request);
  settle_queue(request);
  scheduler_.end_turn(live.sequence);
}

void Engine::Impl::continue_sessions() {
  if (scheduler_.pause() != sched::Pause::none) return;  // a turn is a request of its own: it waits like a new one
  for (LiveRequest* request : sessions_) {
    if (request->session != SessionState::between || request->turns.empty()) continue;
    LiveSequence& live = *request->sequences.front();
    if (live.finish || !scheduler_.can_continue(live.sequence)) continue;
    start_turn(*request);
    woken_ = true;
  }
}

void Engine::Impl::start_turn(LiveRequest& request) {
  const LiveRequest::PendingTurn pending = std::move(request.turns.front());
  request.turns.pop_front();
  const Turn& turn = pending.turn;
  LiveSequence& live = *request.sequences.front();
  sched::Sequence& sequence = live.sequence;
  if (turn.sampling) live.sampling = *turn.sampling;
  request.session = SessionState::turn;
  request.n_preemptions_before = sequence.n_preemptions;
  request.usage = {};
  request.usage.n_prompt = sequence.n_known() + static_cast<uint32_t>(turn.tokens.size());
  request.times = {};
  request.times.queued = pending.queued;
  request.n_uncached = request.usage.n_prompt - sequence.n_committed;
  request.counted_queued = true;
  queued_tokens_ += request.usage.n_prompt;
  uncached_tokens_ += request.n_uncached;
  outputs_.open(live);
  scheduler_.continue_turn(sequence, turn.tokens,
                           sched::limit_of(request.usage.n_prompt, turn.max_tokens, config_.scheduler));
}

}  // namespace heddle::engine
