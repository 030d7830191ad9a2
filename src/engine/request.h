#pragma once
// What a client asked, in native terms: no JSON, no text. A value owned by the engine once submitted; the caller cannot
// change it later. api/ and the offline front end build it; ready token ids and the caller's arrival stamp come with
// it.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "device/sampling.h"

namespace heddle::engine {

struct StopRules {
  std::vector<std::string> strings;  // none empty
  std::vector<TokenId> token_ids;
  bool ignore_eos = false;
  bool include_stop_string = false;
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
};

enum class FinishReason : uint8_t { stop, length, abort, error };
const char* to_string(FinishReason reason);

struct Finish {
  FinishReason reason = FinishReason::stop;
  TokenId stop_token = -1;    // the stop token other than the primary eos, or -1
  std::string stop_string{};  // the matched stop string, or empty
  std::string message{};      // for error: one line
};

}  // namespace heddle::engine
