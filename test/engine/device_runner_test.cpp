#include "engine/device_runner.h"

#include <doctest/doctest.h>

#include <cmath>

#include "runner_fixture.h"

namespace heddle::engine {
namespace {

TEST_CASE("a prompt of 6 tokens makes rows 6 and head rows 1; a chunk that does not finish it makes head rows 0") {
  RunnerFixture f;
  StepPlan whole;
  f.join(whole, 0);
  f.add(whole, f.host(0, kPrompt, 0, Outputs::sample));
  const auto results = f.wait(f.go(whole));
  CHECK(f.count("embed [6, 32]") == 1);
  CHECK(f.count("output.weight [1, 96]") == 1);
  CHECK(f.count("sample [1, 96]") == 1);
  CHECK(results[0].token >= 0);

  f.device->trace.clear();
  StepPlan chunk;
  f.join(chunk, 1);
  f.add(chunk, f.host(1, std::span(kPrompt).first(4), 0, Outputs::none));
  const auto none = f.wait(f.go(chunk));
  CHECK(none.size() == 1);
  CHECK(none[0].token == -1);
  CHECK(!none[0].nan);
  for (const std::string& op : f.device->trace) {
    CHECK(!op.starts_with("output.weight"));
    CHECK(!op.starts_with("sample"));
  }
}

TEST_CASE("a token of the device feeds the next step, the same as if the host had sent it") {
  RunnerFixture f;
  StepPlan prompt;
  f.join(prompt, 2);
  f.add(prompt, f.host(2, kPrompt, 0, Outputs::sample));
  const SeqResult first = f.wait(f.go(prompt))[0];
  StepPlan from_slot;
  f.add(from_slot, f.next(2, 6, 1));
  const SeqResult second = f.wait(f.go(from_slot))[0];

  StepPlan from_host;
  f.join(from_host, 3);
  std::vector<TokenId> both = kPrompt;
  both.push_back(first.token);
  f.add(from_host, f.host(3, both, 0, Outputs::sample, 1));
  const SeqResult again = f.wait(f.go(from_host))[0];
  CHECK(again.token == second.token);
  CHECK(again.logits_hash == second.logits_hash);
  CHECK(again.logits_hash != first.logits_hash);
}

TEST_CASE("results come in the plan's order, whatever each sequence asked for") {
  RunnerFixture f;
  StepPlan alone;
  f.join(alone, 0);
  f.add(alone, f.host(0, kPrompt, 0, Outputs::sample));
  const SeqResult expected = f.wait(f.go(alone))[0];

  StepPlan mixed;
  mixed.left.push_back(SlotId{0});
  for (const uint32_t slot : {0u, 1u, 2u}) f.join(mixed, slot);
  f.add(mixed, f.host(1, std::span(kPrompt).first(3), 0, Outputs::none));
  f.add(mixed, f.host(0, kPrompt, 0, Outputs::sample));
  f.add(mixed, f.host(2, std::span(kPrompt).last(2), 0, Outputs::sample));
  const auto results = f.wait(f.go(mixed));
  CHECK(results[0].token == -1);
  CHECK(results[0].logits_hash == 0);
  CHECK(results[1].token == expected.token);
  CHECK(results[1].logits_hash == expected.logits_hash);
  CHECK(results[2].token >= 0);
  CHECK(results[2].logits_hash != expected.logits_hash);
}

TEST_CASE("slots leave before others join, so one may change hands in a plan") {
  RunnerFixture f;
  StepPlan first;
  f.join(first, 0);
  f.add(first, f.host(0, kPrompt, 0, Outputs::sample));
  f.wait(f.go(first));
  f.device->trace.clear();
  StepPlan second;
  second.left.push_back(SlotId{0});
  second.joined.push_back({SlotId{0}, &f.sampling, kPrompt, std::span(kPrompt).first(2)});
  f.add(second, f.host(0, kPrompt, 0, Outputs::sample));
  f.wait(f.go(second));
  CHECK(f.device->trace[0] == "leave 0");
  CHECK(f.device->trace[1] == "join 0: 6+2");
}

TEST_CASE("two steps in flight are waited for in order, each with its own result") {
  RunnerFixture f(2);
  CHECK(f.runner->max_in_flight() == 2);
  f.device->defer = true;
  StepPlan prompt, decode, third;
  f.join(prompt, 0);
  f.add(prompt, f.host(0, kPrompt, 0, Outputs::sample));
  const Ticket a = f.go(prompt);
  f.add(decode, f.next(0, 6, 1));
  const Ticket b = f.go(decode);
  CHECK(a.number == 0);
  CHECK(b.number == 1);

  std::vector<SeqResult> results;
  bool done = false;
  boost::asio::co_spawn(f.io, f.wait_into(a, results, done), rethrow);
  f.io.poll();
  CHECK(!done);  // the device has not said so
  f.device->run_done();
  f.io.restart();
  f.io.poll();
  CHECK(done);
  const SeqResult first = results[0];
  f.device->defer = false;
  f.add(third, f.next(0, 7, 2));
  const Ticket c = f.go(third);
  const SeqResult second = f.wait(b)[0];
  const SeqResult last = f.wait(c)[0];
  CHECK(second.logits_hash != first.logits_hash);

  RunnerFixture one;
  StepPlan again, decode_again;
  one.join(again, 0);
  one.add(again, one.host(0, kPrompt, 0, Outputs::sample));
  CHECK(one.wait(one.go(again))[0].logits_hash == first.logits_hash);
  one.add(decode_again, one.next(0, 6, 1));
  CHECK(one.wait(one.go(decode_again))[0].logits_hash == second.logits_hash);
  CHECK(last.token >= 0);
}

TEST_CASE("a row with a NaN says so and brings no token") {
  RunnerFixture f;
  f.device->poison_logits = true;
  StepPlan plan;
  f.join(plan, 0);
  f.add(plan, f.host(0, kPrompt, 0, Outputs::sample));
  const auto results = f.wait(f.go(plan));
  CHECK(results[0].nan);
  CHECK(results[0].token == -1);
}

TEST_CASE("all logits of a sequence can be had, beside sampled rows of another") {
  RunnerFixture f(1, 16);
  StepPlan plan;
  f.join(plan, 0);
  f.join(plan, 1);
  f.add(plan, f.host(0, kPrompt, 0, Outputs::all_logits));
  f.add(plan, f.host(1, kPrompt, 0, Outputs::sample));
  const Ticket ticket = f.go(plan);
  const auto results = f.wait(ticket);
  const std::span<const float> logits = f.runner->logits(ticket);
  REQUIRE(logits.size() == 7 * 96);
  CHECK(results[0].token == -1);
  CHECK(hash_row(logits.subspan(5 * 96, 96)) == results[1].logits_hash);
  CHECK(hash_row(logits.subspan(6 * 96, 96)) == results[1].logits_hash);
  CHECK(hash_row(logits.subspan(4 * 96, 96)) != results[1].logits_hash);
}

TEST_CASE("the hash of a row changes with any bit of it, and with its length") {
  std::vector<float> row(100, 1.0f);
  const uint64_t hash = hash_row(row);
  CHECK(hash_row(std::span(row).first(99)) != hash);
  for (size_t i = 0; i < row.size(); ++i) {
    std::vector<float> changed = row;
    changed[i] = std::nextafter(1.0f, 2.0f);
    CHECK(hash_row(changed) != hash);
  }
  row[3] = 0.0f;
  const uint64_t zero = hash_row(row);
  row[3] = -0.0f;
  CHECK(hash_row(row) != zero);
}

}  // namespace
}  // namespace heddle::engine
