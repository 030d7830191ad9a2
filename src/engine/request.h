#pragma once
// What a client asked, in native terms: no JSON, no text. A value owned by the engine once submitted; the caller cannot
// change it later. api/ and the offline front end build it; ready token ids and the caller's arrival stamp come with
// it.
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "device/sampling.h"
#include "engine/token_masker.h"
#include "sched/sequence.h"

namespace heddle::engine {

struct StopRules {
  std::vector<std::string> strings;  // none empty
  std::vector<TokenId> token_ids;
  bool ignore_eos = false;
  bool include_stop_string = false;
};

// Times after which a request is worth nothing to its client; on the engine's clock. A request that waits is dropped as
// soon as it cannot make its first token in time even at twice the measured rate.
struct Deadlines {
  std::optional<MonotonicTime> total, first_token;
};

struct Request {
  std::string id;                 // external id, e.g. "chatcmpl-…"; unique among live requests
  std::vector<TokenId> prompt;    // not empty, ids inside the vocabulary
  device::SlotSampling sampling;  // seed is set; sample i of n uses seed + i; end_tokens and min_tokens filled by api
  StopRules stop;
  uint32_t max_tokens = 16;  // >= 1 and prompt + max_tokens <= max_model_len
  uint32_t n = 1;            // sequences computed from one prompt
  bool skip_special_tokens = true;
  std::string cache_salt;  // domain of prefix sharing
  Arrival arrival;         // when the request was read, before templates and tokenising

  int32_t priority = 0;  // smaller first, under the priority policy
  std::string tenant;    // whose share it counts for, under the fair policy
  Deadlines deadlines;
  sched::Deferral deferral = sched::Deferral::none;  // waits for this, until Engine::ready()
  // One for each of the n sequences; empty: no mask.
  std::function<std::unique_ptr<TokenMasker>()> make_masker;
  // A session: it may be given more input while it waits and after it has answered (Engine::append). n is 1, and stop
  // strings are not allowed. Each turn is a request of its own in every count.
  bool session = false;
};

// More input for a session. The next answer continues from it.
struct Turn {
  std::vector<TokenId> tokens;  // not empty
  uint32_t max_tokens = 16;
  std::optional<device::SlotSampling> sampling;  // of this turn and the next ones; absent: as before
  Arrival arrival;
};

enum class FinishReason : uint8_t { stop, length, abort, error };
const char* to_string(FinishReason reason);

struct Finish {
  FinishReason reason = FinishReason::stop;
  TokenId stop_token = -1;         // the stop token other than the primary eos, or -1
  std::string stop_string{};       // the matched stop string, or empty
  std::string message{};           // for error and for a missed deadline: one line
  bool deadline_exceeded = false;  // an abort by the engine, since the client's time was over
};

}  // namespace heddle::engine
