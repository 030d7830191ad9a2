#pragma once
// From committed tokens to deltas. Owned by the engine; loop thread only. append() and end() write into plain
// per-sequence outputs and a dirty list; flush() makes one pass over that list and calls the sinks. Text is made by one
// incremental decoder whether or not the client streams. Nothing is allocated for a sequence that decodes, once its
// buffers have grown.
//
// Detokenising waits for flush(), which the step loop calls after it has launched the next step; only sequences with
// stop strings pay for it in append(), since their text can end them.
#include <memory>
#include <vector>

#include "engine/live_request.h"
#include "text/tokenizer.h"

namespace heddle::engine {

class OutputProcessor {
 public:
  // The tokenizer may be null: outputs then carry token ids and no text.
  OutputProcessor(std::shared_ptr<const text::Tokenizer> tokenizer, TokenId primary_eos);

  // Prepares a sequence whose request, index and sampling are set; and a session's sequence for its next turn.
  void open(LiveSequence& live);
  // A committed token, already in sequence.tokens; -1 for NaN logits. True if the sequence ends with it: finish is set.
  bool append(LiveSequence& live, TokenId token, MonotonicTime now);
  // Ends a sequence from outside. Only the first end counts.
  void end(LiveSequence& live, Finish finish);
  // Hands out what is new. Sinks may call back into the engine (abort, submit).
  void flush();
  // Requests whose on_end was called since the list was last cleared.
  std::vector<LiveRequest*>& ended() { return ended_; }

 private:
  void mark(LiveSequence& live);
  void decode(LiveSequence& live, TokenId token, bool check_stops);
  void decode_pending(LiveSequence& live);
  void close_text(LiveSequence& live);
  void match_stop(LiveSequence& live);

  std::shared_ptr<const text::Tokenizer> tokenizer_;
  TokenId primary_eos_;
  std::vector<LiveSequence*> dirty_;
  std::vector<LiveRequest*> ended_;
  std::string piece_;  // what the detokenizer gave for one token, on its way to the stop strings
};

}  // namespace heddle::engine
