#pragma once
// How a request asks to be served, apart from what is computed: its priority, whose share it counts for, until when its
// answer is worth something, and by which engine. Read from headers (X-Vllm-Priority, X-Request-Timeout-Ms,
// X-First-Token-Timeout-Ms, X-data-parallel-rank) and body fields; a header wins over its field. Pure; any thread.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api/error.h"
#include "api/generation_fields.h"
#include "api/http.h"
#include "engine/request.h"
#include "sched/config.h"

namespace heddle::api {

// What the server fixes for every request.
struct TermsPolicy {
  sched::PolicyKind policy = sched::PolicyKind::fcfs;
  uint32_t n_engines = 1;
};

struct RequestTerms {
  int32_t priority = 0;
  // "key2" for the second --api-key (never the key itself); without keys the body's `user`, or empty.
  std::string tenant;
  std::optional<int64_t> timeout_ms, first_token_timeout_ms;  // from the arrival
  std::optional<uint32_t> rank;

  engine::Deadlines deadlines(const Arrival& arrival) const;
  // For the access log: "priority=0 tenant=key1 deadline=5000 first_token_deadline=-", times in milliseconds.
  std::string describe() const;
};

// A priority that the policy does not look at is a warning: it changes nothing.
ApiResult<RequestTerms> read_terms(const HttpRequest& request, const GenerationFields& fields,
                                   const TermsPolicy& server, std::vector<std::string>& warnings);

}  // namespace heddle::api
