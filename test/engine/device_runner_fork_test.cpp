// Plans with forks, block copies and token masks, as the runner computes them.
#include "runner_fixture.h"

namespace heddle::engine {
namespace {

// Samples its first token from the last row of entry `of`.
SeqStep fork(RunnerFixture& f, uint32_t slot, uint32_t of, uint32_t index = 0) {
  return {.id = SeqId{slot},
          .slot = SlotId{slot},
          .logits_of = of,
          .first_position = static_cast<uint32_t>(kPrompt.size()),
          .outputs = Outputs::sample,
          .token_index = index,
          .blocks = f.blocks[slot]};
}

SeqResult prompt_alone(const std::vector<TokenId>& prompt) {
  RunnerFixture f;
  StepPlan plan;
  f.join(plan, 0);
  f.add(plan, f.host(0, prompt, 0, Outputs::sample));
  return f.wait(f.go(plan))[0];
}

std::vector<uint32_t> only(std::initializer_list<TokenId> allowed) {
  std::vector<uint32_t> words(3);
  for (const TokenId token : allowed) words[static_cast<size_t>(token) / 32] |= 1u << token % 32;
  return words;
}

}  // namespace

TEST_CASE("forks sample from the last row of the entry they name, each from a row of its own, beside other sequences") {
  const SeqResult expected = prompt_alone(kPrompt);
  const std::vector<TokenId> other(kPrompt.begin(), kPrompt.begin() + 3);
  const SeqResult beside = prompt_alone(other);
  RunnerFixture f;
  StepPlan plan;
  for (const uint32_t slot : {0u, 1u, 2u, 3u}) f.join(plan, slot);
  f.add(plan, f.host(3, other, 0, Outputs::sample));
  f.add(plan, f.host(0, kPrompt, 0, Outputs::sample));
  f.add(plan, fork(f, 1, 1));
  f.add(plan, fork(f, 2, 1));
  const auto results = f.wait(f.go(plan));
  CHECK(f.count("embed [9, 32]") == 1);
  CHECK(f.count("output.weight [4, 96]") == 1);
  CHECK(f.count("sample [4, 96]") == 1);
  CHECK(results[0].logits_hash == beside.logits_hash);
  for (const size_t i : {1u, 2u, 3u}) {
    CHECK(results[i].logits_hash == expected.logits_hash);
    CHECK(results[i].token == expected.token);
  }
}

TEST_CASE("there may be more samplers than rows, and as many samplers as rows that are not the rows in order") {
  // The prompt but for its last token is there: one row, four samplers.
  const SeqResult expected = prompt_alone(kPrompt);
  RunnerFixture f;
  StepPlan first, second;
  f.join(first, 0);
  f.add(first, f.host(0, std::span(kPrompt).first(5), 0, Outputs::none));
  f.wait(f.go(first));
  for (const uint32_t slot : {1u, 2u, 3u}) f.join(second, slot);
  f.add(second, f.host(0, std::span(kPrompt).last(1), 5, Outputs::sample));
  for (const uint32_t slot : {1u, 2u, 3u}) f.add(second, fork(f, slot, 0));
  for (const SeqResult& result : f.wait(f.go(second))) CHECK(result.logits_hash == expected.logits_hash);

  // Two rows of one sequence, two samplers, both of the second row.
  RunnerFixture two;
  StepPlan begin, end;
  two.join(begin, 0);
  two.add(begin, two.host(0, std::span(kPrompt).first(4), 0, Outputs::none));
  two.wait(two.go(begin));
  two.join(end, 1);
  two.add(end, two.host(0, std::span(kPrompt).last(2), 4, Outputs::sample));
  two.add(end, fork(two, 1, 0));
  for (const SeqResult& result : two.wait(two.go(end))) CHECK(result.logits_hash == expected.logits_hash);
}

TEST_CASE("copied blocks are there for the rows of the same step") {
  RunnerFixture f;
  StepPlan prompt, both;
  f.join(prompt, 0);
  f.join(prompt, 1);
  f.add(prompt, f.host(0, kPrompt, 0, Outputs::sample));
  f.add(prompt, fork(f, 1, 0));
  f.wait(f.go(prompt));
  // The fork writes its next position into a block of its own; the other goes on in the old one.
  both.copies.push_back({f.blocks[0][0], f.blocks[1][0]});
  f.add(both, f.next(0, 6, 1));
  f.add(both, f.next(1, 6, 1));
  const auto results = f.wait(f.go(both));
  CHECK(f.count("copy 1 blocks") == 1);
  CHECK(results[0].logits_hash == results[1].logits_hash);

  StepPlan own;
  const TokenId token = 7;
  f.add(own, f.host(1, {&token, 1}, 7, Outputs::sample, 2));
  f.add(own, f.next(0, 7, 2));
  const auto apart = f.wait(f.go(own));
  CHECK(apart[0].logits_hash != apart[1].logits_hash);
}

TEST_CASE("masks go to the masked entries in the plan's order, and a fork's mask does not touch its sibling") {
  const SeqResult free = prompt_alone(kPrompt);
  RunnerFixture f;
  StepPlan plan;
  for (const uint32_t slot : {0u, 1u, 2u, 3u}) f.join(plan, slot);
  f.add(plan, f.host(0, kPrompt, 0, Outputs::sample));
  f.add(plan, fork(f, 1, 0));
  f.add(plan, f.host(3, kPrompt, 0, Outputs::none));
  f.add(plan, fork(f, 2, 0));
  plan.seqs[1].masked = plan.seqs[3].masked = true;
  const std::vector<uint32_t> a = only({40}), b = only({90});
  const TokenMask masks[] = {a, b};
  const Ticket ticket = f.runner->launch(plan);
  CHECK(f.count("submit") == 1);  // the device computes while the host makes the masks
  f.runner->sample(ticket, {.masks = masks});
  const auto results = f.wait(ticket);
  CHECK(results[0].token == free.token);
  CHECK(results[1].token == 40);
  CHECK(results[2].token == -1);
  CHECK(results[3].token == 90);
  // Hashes are of raw rows.
  CHECK(results[1].logits_hash == free.logits_hash);
  CHECK(results[3].logits_hash == free.logits_hash);

  // The next step's rows are free again, and a plan without masks hands nothing over early.
  StepPlan next;
  f.add(next, f.next(0, 6, 1));
  CHECK(f.wait(f.go(next))[0].token >= 0);
  CHECK(f.count("submit") == 1);
}

TEST_CASE("depth_must_do_something: eight steps are in flight at once, and results are those of one at a time") {
  std::vector<uint64_t> hashes[2];
  for (const uint32_t depth : {1u, 8u}) {
    RunnerFixture f(depth);
    CHECK(f.runner->max_in_flight() == depth);
    f.device->defer = true;
    std::vector<StepPlan> plans(24);
    std::vector<Ticket> tickets;
    auto& out = hashes[depth == 8];
    f.join(plans[0], 0);
    f.add(plans[0], f.host(0, kPrompt, 0, Outputs::sample));
    for (uint32_t i = 1; i < plans.size(); ++i) f.add(plans[i], f.next(0, 5 + i, i));
    for (size_t i = 0; i < plans.size(); i += depth) {
      for (size_t j = i; j < i + depth; ++j) tickets.push_back(f.go(plans[j]));
      CHECK(f.device->deferred.size() == depth);
      f.device->run_done();
      for (size_t j = i; j < i + depth; ++j) out.push_back(f.wait(tickets[j])[0].logits_hash);
    }
  }
  CHECK(hashes[0] == hashes[1]);
}

}  // namespace heddle::engine
