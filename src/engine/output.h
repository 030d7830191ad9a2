#pragma once
// What comes back. After each commit the engine makes one flush pass on the loop over the requests that have something
// new and hands each its Delta; nobody awaits a channel. Text is detokenised, stop strings are already cut, UTF-8 is
// whole.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/request.h"

namespace heddle::engine {

// When things happened, monotonic; zero until they did.
struct Times {
  MonotonicTime queued{}, scheduled{}, first_token{}, last_token{};
};

struct Delta {
  uint32_t index = 0;               // which of the request's n sequences
  std::string_view text;            // new text, may be empty; valid during the call
  std::span<const TokenId> tokens;  // new token ids, in step order
  const Finish* finish = nullptr;   // set on the sequence's last delta, exactly once (of a session: the turn's)
};

// Of a session's turn: its own tokens; n_prompt is everything before the answer, and what the KV still held is cached.
struct Usage {
  uint32_t n_prompt = 0, n_cached = 0, n_generated = 0;  // n_generated: sum over the n sequences
  uint32_t n_preemptions = 0;
};

// Implemented by api/ and the offline front end; called on the loop only, never after on_end.
class OutputSink {
 public:
  virtual ~OutputSink() = default;
  virtual void on_delta(const Delta& delta) = 0;
  // Of a session: a turn's last delta was given, and more input may come.
  virtual void on_turn(const Usage& usage, const Times& times) {
    (void)usage;
    (void)times;
  }
  // Once, after every sequence's last delta: the request is over (one-end).
  virtual void on_end(const Usage& usage, const Times& times) = 0;
};

}  // namespace heddle::engine
