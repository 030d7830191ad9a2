#include "api/request_terms.h"

#include <fmt/format.h>

#include <charconv>
#include <limits>

#include "api/ascii.h"

namespace heddle::api {
namespace {

// One beyond 64 bits is the nearest that is not: out of every range here.
std::optional<int64_t> whole_number(std::string_view text) {
  text = trim(text);
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || error == std::errc::invalid_argument || end != text.data() + text.size()) return std::nullopt;
  if (error == std::errc::result_out_of_range)
    return text.front() == '-' ? std::numeric_limits<int64_t>::min() : std::numeric_limits<int64_t>::max();
  return number;
}

// A header with a whole number in a range; nullopt when it is not there.
ApiResult<std::optional<int64_t>> read_header(const HttpRequest& request, std::string_view name, int64_t low,
                                              int64_t high) {
  const auto text = request.header(name);
  if (!text) return std::optional<int64_t>{};
  const std::optional<int64_t> number = whole_number(*text);
  if (!number || *number < low || *number > high)
    return bad_request(std::string(name),
                       fmt::format("the header {} must be a whole number between {} and {}, got '{}'", name, low, high,
                                   text->substr(0, 60)));
  return number;
}

// Text of a client inside a log line: neither long nor with anything that would end the word.
std::string logged(std::string_view text) {
  constexpr size_t most = 64;
  std::string out(text.substr(0, most));
  for (char& c : out) {
    if (c <= ' ' || c >= 127) c = '?';
  }
  return out.empty() ? "-" : out;
}

std::string milliseconds(const std::optional<int64_t>& time) { return time ? fmt::format("{}", *time) : "-"; }

}  // namespace

engine::Deadlines RequestTerms::deadlines(const Arrival& arrival) const {
  const auto after = [&](const std::optional<int64_t>& ms) -> std::optional<MonotonicTime> {
    if (!ms) return std::nullopt;
    return arrival.monotonic + std::chrono::milliseconds(*ms);
  };
  return {.total = after(timeout_ms), .first_token = after(first_token_timeout_ms)};
}

std::string RequestTerms::describe() const {
  return fmt::format("priority={} tenant={} deadline={} first_token_deadline={}", priority, logged(tenant),
                     milliseconds(timeout_ms), milliseconds(first_token_timeout_ms));
}

ApiResult<RequestTerms> read_terms(const HttpRequest& request, const GenerationFields& fields,
                                   const TermsPolicy& server, std::vector<std::string>& warnings) {
  using Int32 = std::numeric_limits<int32_t>;
  RequestTerms terms;
  const auto priority = read_header(request, "X-Vllm-Priority", Int32::min(), Int32::max());
  if (!priority) return tl::unexpected(priority.error());
  terms.priority = static_cast<int32_t>(priority->value_or(fields.priority.value_or(0)));
  if (terms.priority != 0 && server.policy != sched::PolicyKind::priority)
    warnings.push_back(fmt::format(
        "priority {} has no effect: this server does not run with --scheduling-policy priority", terms.priority));

  terms.tenant = request.key > 0 ? fmt::format("key{}", request.key) : fields.user.value_or("");

  const auto total = read_header(request, "X-Request-Timeout-Ms", 1, kMaxTimeoutMs);
  if (!total) return tl::unexpected(total.error());
  terms.timeout_ms = *total ? *total : fields.timeout_ms;
  const auto first = read_header(request, "X-First-Token-Timeout-Ms", 1, kMaxTimeoutMs);
  if (!first) return tl::unexpected(first.error());
  terms.first_token_timeout_ms = *first ? *first : fields.first_token_timeout_ms;

  // As in vLLM: what is no number is ignored, a number without an engine is an error.
  const auto rank_text = request.header("X-data-parallel-rank");
  if (const auto rank = whole_number(rank_text.value_or(""))) {
    if (*rank < 0 || *rank >= server.n_engines)
      return bad_request("X-data-parallel-rank", fmt::format("the header X-data-parallel-rank must be below the number "
                                                             "of engines ({}), got {}",
                                                             server.n_engines, *rank));
    terms.rank = static_cast<uint32_t>(*rank);
  }
  return terms;
}

}  // namespace heddle::api
