#pragma once
// A request between submit and its end, and its n sequences. Owned by the engine; loop thread only. A request is
// destroyed when its end was delivered and the scheduler is done with all of its sequences.
//
// A session is a request of one sequence whose life is a row of turns; a turn is what every count calls a request.
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/finish.h"
#include "engine/output.h"
#include "engine/request.h"
#include "sched/sequence.h"
#include "text/detokenizer.h"
#include "text/stop_strings.h"

namespace heddle::engine {

struct LiveRequest;

struct LiveSequence {
  LiveRequest* request = nullptr;
  uint32_t index = 0;  // which of the n
  sched::Sequence sequence;
  device::SlotSampling sampling;  // seed + index
  EndRules rules;

  std::optional<text::Detokenizer> detokenizer;  // empty without a tokenizer
  std::optional<text::StopStrings> stops;        // empty without stop strings
  std::string text;                              // for the next delta
  std::vector<TokenId> tokens;                   // for the next delta
  uint32_t n_decoded = 0;                        // of `tokens`, already in `text`
  std::optional<Finish> finish;                  // set once (one-end); of a session: once a turn
  bool finish_sent = false;
  bool dirty = false;  // in the processor's list

  std::unique_ptr<TokenMasker> masker;  // null: every token is allowed
  std::vector<uint32_t> mask;           // for the row in flight
};

struct LiveRequest {
  Request request;
  std::shared_ptr<OutputSink> sink;
  Usage usage;
  Times times;
  uint32_t n_uncached = 0;     // prompt rows that the prefix cache did not hold at submit
  uint64_t rows_before = 0;    // while it waits: rows until its first token, own ones included; set by drop_late
  bool counted_queued = true;  // in the engine's sums over requests without a first token
  uint32_t n_open = 0;         // sequences whose last delta is still to come
  uint32_t n_unretired = 0;    // sequences that the scheduler still refers to
  std::vector<std::unique_ptr<LiveSequence>> sequences;

  // Of a session.
  enum class SessionState : uint8_t {
    none,     // an ordinary request
    turn,     // a turn is under way
    between,  // answered: waits for more input
  };
  struct PendingTurn {
    Turn turn;
    MonotonicTime queued{};
  };
  SessionState session = SessionState::none;
  bool closed = false;                // no more input will come
  uint32_t n_preemptions_before = 0;  // of the turns before this one
  std::deque<PendingTurn> turns;      // given while a turn was under way

  bool has_turn() const { return session != SessionState::between; }
  // Whether the next end is a turn's, and not the session's.
  bool goes_on() const { return session != SessionState::none && (!closed || !turns.empty()); }
};

}  // namespace heddle::engine
