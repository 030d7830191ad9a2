#include "api/request_terms.h"

#include <doctest/doctest.h>

using namespace heddle;
using namespace heddle::api;

namespace {

HttpRequest with(HeaderList headers, uint32_t key = 0) {
  HttpRequest request;
  request.headers = std::move(headers);
  request.key = key;
  return request;
}

const TermsPolicy kPriority{sched::PolicyKind::priority, 2};

RequestTerms terms(const HttpRequest& request, const GenerationFields& fields = {}) {
  std::vector<std::string> warnings;
  auto read = read_terms(request, fields, kPriority, warnings);
  REQUIRE(read.has_value());
  CHECK(warnings.empty());
  return *read;
}

}  // namespace

TEST_CASE("a request that asks for nothing has no terms") {
  const RequestTerms read = terms(with({}));
  CHECK(read.priority == 0);
  CHECK(read.tenant.empty());
  CHECK_FALSE(read.rank);
  CHECK_FALSE(read.deadlines({}).total);
  CHECK_FALSE(read.deadlines({}).first_token);
  CHECK(read.describe() == "priority=0 tenant=- deadline=- first_token_deadline=-");
}

TEST_CASE("a header wins over the body's field") {
  GenerationFields fields;
  fields.priority = 5;
  fields.timeout_ms = 100;
  fields.first_token_timeout_ms = 200;
  CHECK(terms(with({}), fields).priority == 5);
  CHECK(terms(with({{"x-vllm-priority", " -3 "}}), fields).priority == -3);
  const HttpRequest both = with({{"X-Request-Timeout-Ms", "7"}, {"X-First-Token-Timeout-Ms", "8"}});
  CHECK(terms(both, fields).timeout_ms == 7);
  CHECK(terms(both, fields).first_token_timeout_ms == 8);
  CHECK(terms(with({}), fields).timeout_ms == 100);
  CHECK(terms(with({}), fields).describe() == "priority=5 tenant=- deadline=100 first_token_deadline=200");
}

TEST_CASE("deadlines count from the arrival") {
  GenerationFields fields;
  fields.timeout_ms = 1500;
  fields.first_token_timeout_ms = 250;
  Arrival arrival;
  arrival.monotonic = MonotonicTime{} + std::chrono::seconds(10);
  const engine::Deadlines deadlines = terms(with({}), fields).deadlines(arrival);
  CHECK(*deadlines.total == MonotonicTime{} + std::chrono::milliseconds(11500));
  CHECK(*deadlines.first_token == MonotonicTime{} + std::chrono::milliseconds(10250));
}

TEST_CASE("the tenant is the key's position, or without keys the user") {
  GenerationFields fields;
  fields.user = "alice";
  CHECK(terms(with({}), fields).tenant == "alice");
  CHECK(terms(with({}, 2), fields).tenant == "key2");
  fields.user = "a b\nfinish=stop\xC3\xA9";
  CHECK(terms(with({}), fields).describe() == "priority=0 tenant=a?b?finish=stop?? deadline=- first_token_deadline=-");
}

TEST_CASE("a bad header is a 400 that names it") {
  const struct {
    const char* name;
    const char* value;
  } table[] = {
      {"X-Vllm-Priority", "high"},
      {"X-Vllm-Priority", "1.5"},
      {"X-Vllm-Priority", "2147483648"},
      {"X-Vllm-Priority", ""},
      {"X-Request-Timeout-Ms", "0"},
      {"X-Request-Timeout-Ms", "-1"},
      {"X-Request-Timeout-Ms", "1s"},
      {"X-Request-Timeout-Ms", ""},
      {"X-Request-Timeout-Ms", "1e3"},
      {"X-Request-Timeout-Ms", "99999999999999999999"},
      {"X-First-Token-Timeout-Ms", "0"},
      {"X-First-Token-Timeout-Ms", "x"},
      {"X-data-parallel-rank", "2"},
      {"X-data-parallel-rank", "-1"},
      {"X-data-parallel-rank", "99999999999999999999"},
  };
  for (const auto& bad : table) {
    CAPTURE(bad.name);
    CAPTURE(bad.value);
    std::vector<std::string> warnings;
    const auto read = read_terms(with({{bad.name, bad.value}}), {}, kPriority, warnings);
    REQUIRE_FALSE(read.has_value());
    CHECK(read.error().status == 400);
    CHECK(read.error().param == bad.name);
    CHECK(read.error().message.find(bad.name) != std::string::npos);
  }
}

TEST_CASE("a rank that is no number is ignored, one that there is is taken") {
  CHECK(terms(with({{"X-Data-Parallel-Rank", "1"}})).rank == 1u);
  for (const char* value : {"", "one", "1.0", "0x1"}) CHECK_FALSE(terms(with({{"X-data-parallel-rank", value}})).rank);
}

TEST_CASE("a priority that the policy does not look at is warned of") {
  for (sched::PolicyKind policy : {sched::PolicyKind::fcfs, sched::PolicyKind::fair}) {
    std::vector<std::string> warnings;
    GenerationFields fields;
    fields.priority = 0;
    CHECK(read_terms(with({}), fields, {policy, 1}, warnings).has_value());
    CHECK(warnings.empty());
    fields.priority = -1;
    CHECK(read_terms(with({}), fields, {policy, 1}, warnings).has_value());
    REQUIRE(warnings.size() == 1);
    CHECK(warnings[0].find("priority -1") != std::string::npos);
  }
}
