#include "engine/output_processor.h"

#include <fmt/format.h>

#include "base/check.h"

namespace heddle::engine {

OutputProcessor::OutputProcessor(std::shared_ptr<const text::Tokenizer> tokenizer, TokenId primary_eos)
    : tokenizer_(std::move(tokenizer)), primary_eos_(primary_eos) {}

void OutputProcessor::open(LiveSequence& live) {
  const Request& request = live.request->request;
  live.rules = {primary_eos_, live.sampling.end_tokens, request.stop.token_ids, request.stop.ignore_eos};
  if (!tokenizer_) return;
  live.text.reserve(256);  // a token's worth, so that decoding allocates nothing
  live.detokenizer.emplace(tokenizer_->vocab(), text::DetokenizeOptions{.skip_special = request.skip_special_tokens});
  if (!request.stop.strings.empty()) live.stops.emplace(request.stop.strings, request.stop.include_stop_string);
}

bool OutputProcessor::append(LiveSequence& live, TokenId token, MonotonicTime now) {
  HEDDLE_CHECK(!live.finish);
  const sched::Sequence& sequence = live.sequence;
  if (token < 0) {
    const char* what = live.masker ? "NaN logits, or none for an allowed token," : "NaN logits";
    end(live, {.reason = FinishReason::error,
               .message = fmt::format("the model gave {} for token {} of the output", what, sequence.n_generated())});
    return true;
  }
  LiveRequest& request = *live.request;
  if (request.times.first_token == MonotonicTime{}) request.times.first_token = now;
  request.times.last_token = now;
  ++request.usage.n_generated;
  live.tokens.push_back(token);
  mark(live);
  const std::optional<TokenEnd> token_end = check_token(live.rules, token, sequence.n_known(), sequence.n_limit);
  if (token_end) live.finish = Finish{.reason = token_end->reason, .stop_token = token_end->stop_token};
  if (live.masker && (!live.finish || live.finish->reason == FinishReason::length) && !live.masker->accept(token))
    live.finish =
        Finish{.reason = FinishReason::error,
               .message = fmt::format("token {} of the output is not of the grammar", sequence.n_generated() - 1)};
  if (live.stops) {
    decode_pending(live);
    if (!live.finish || live.finish->reason == FinishReason::length) match_stop(live);
  }
  return live.finish.has_value();
}

void OutputProcessor::end(LiveSequence& live, Finish finish) {
  if (live.finish) return;
  live.finish = std::move(finish);
  mark(live);
}

void OutputProcessor::mark(LiveSequence& live) {
  if (live.dirty) return;
  live.dirty = true;
  dirty_.push_back(&live);
}

void OutputProcessor::match_stop(LiveSequence& live) {
  const std::optional<size_t> match = live.stops->matched();
  if (!match) return;
  live.finish = Finish{.reason = FinishReason::stop, .stop_string = live.request->request.stop.strings[*match]};
}

void OutputProcessor::decode(LiveSequence& live, TokenId token, bool check_stops) {
  if (!check_stops) {
    live.detokenizer->feed(token, live.text);
    return;
  }
  piece_.clear();
  live.detokenizer->feed(token, piece_);
  live.stops->feed(piece_, live.text);
}

// The token that stopped the sequence gives no text, unless stop strings are to be included. A stop string is looked
// for only in text that came after the first min_tokens tokens.
void OutputProcessor::decode_pending(LiveSequence& live) {
  if (!live.detokenizer) return;
  const StopRules& stop = live.request->request.stop;
  const bool hide_last = live.finish && live.finish->reason == FinishReason::stop && live.finish->stop_string.empty() &&
                         !stop.include_stop_string;
  const auto n_tokens = static_cast<uint32_t>(live.tokens.size());
  const uint32_t n_before = live.sequence.n_generated() - n_tokens;
  for (; live.n_decoded < n_tokens; ++live.n_decoded) {
    if (hide_last && live.n_decoded + 1 == n_tokens) {
      ++live.n_decoded;
      break;
    }
    const bool check_stops = live.stops && n_before + live.n_decoded + 1 > live.sampling.min_tokens;
    decode(live, live.tokens[live.n_decoded], check_stops);
  }
}

// Nothing more will come: what decoder and stop strings held back is text.
void OutputProcessor::close_text(LiveSequence& live) {
  if (!live.detokenizer) return;
  if (!live.stops) {
    live.detokenizer->flush(live.text);
    return;
  }
  if (live.stops->matched()) return;
  piece_.clear();
  live.detokenizer->flush(piece_);
  live.stops->feed(piece_, live.text);
  live.stops->flush(live.text);
}

void OutputProcessor::flush() {
  for (size_t i = 0; i < dirty_.size(); ++i) {  // grows while sinks abort
    LiveSequence& live = *dirty_[i];
    LiveRequest& request = *live.request;
    live.dirty = false;
    if (live.finish_sent) continue;
    decode_pending(live);
    const Finish* finish = live.finish ? &*live.finish : nullptr;
    if (finish) close_text(live);
    if (request.has_turn() && (finish || !live.text.empty() || !live.tokens.empty())) {
      live.finish_sent = finish != nullptr;
      request.sink->on_delta({live.index, live.text, live.tokens, finish});
      live.text.clear();
      live.tokens.clear();
      live.n_decoded = 0;
    }
    if (!finish) continue;
    live.finish_sent = true;
    if (request.goes_on() && finish->reason == FinishReason::stop) {
      request.session = LiveRequest::SessionState::between;
      live.finish.reset();
      live.finish_sent = false;
      request.sink->on_turn(request.usage, request.times);
    } else if (--request.n_open == 0) {
      ended_.push_back(&request);
      request.sink->on_end(request.usage, request.times);
    }
  }
  dirty_.clear();
}

}  // namespace heddle::engine
