// batch-invariance on the real models: a hash of the raw logits row of every generated position is the same, whatever
// else is in the batch, however the prompt was cut, wherever the blocks lie, after preemption, at depth 1 and 2, on 1
// and 2 threads.
#include <doctest/doctest.h>

#include <random>

#include "model/goldens.h"
#include "reference/cpu_model.h"

namespace heddle {
namespace {

struct Case {
  std::vector<TokenId> prompt;
  device::SlotSampling sampling;
};

std::vector<Case> make_cases(const Goldens& goldens) {
  std::vector<Case> cases;
  const auto& longest = goldens.prompt("long").ids;
  const auto add = [&](std::span<const TokenId> prompt, device::SlotSampling sampling) {
    cases.push_back({{prompt.begin(), prompt.end()}, std::move(sampling)});
  };
  add(goldens.prompt("france").ids, {.temperature = 0.0f});
  add(goldens.prompt("code").ids, {.temperature = 0.8f, .top_p = 0.9f, .seed = 1});
  add(goldens.prompt("chinese").ids, {.temperature = 1.0f, .top_k = 40, .seed = 2});
  add(std::span(longest).first(1), {.temperature = 1.0f, .seed = 3});
  add(std::span(longest).first(270), {.temperature = 0.7f, .min_p = 0.05f, .repetition_penalty = 1.1f, .seed = 4});
  add(std::span(longest).first(100),
      {.temperature = 1.0f, .presence_penalty = 0.5f, .frequency_penalty = 0.5f, .seed = 5});
  return cases;
}

constexpr uint32_t kGenerate = 6;

// Alone, whole prompt, one step after the other.
std::vector<uint64_t> alone(CpuModel& model, const Case& c) {
  TestSeq seq(0, c.prompt, some_blocks(0, 20), c.sampling);
  while (seq.n_generated() < kGenerate) {
    sched::StepPlan plan;
    if (seq.n_computed == 0) model.join(plan, seq);
    seq.plan(plan, 300);
    seq.take(model.run(plan)[0]);
  }
  return seq.hashes;
}

// All together: prompts in chunks, a start at random steps, and now and then a preemption that computes all again.
void check_together(CpuModel& model, const std::vector<Case>& cases, const std::vector<std::vector<uint64_t>>& expected,
                    uint32_t chunk, uint32_t seed) {
  CAPTURE(chunk);
  CAPTURE(seed);
  std::mt19937 random(seed);
  std::vector<TestSeq> seqs;
  std::vector<uint32_t> start, preempted(cases.size());
  std::vector<uint32_t> slots = {0, 1, 2, 3, 4, 5};
  std::shuffle(slots.begin(), slots.end(), random);
  for (uint32_t i = 0; i < cases.size(); ++i) {
    seqs.emplace_back(slots[i], cases[i].prompt, some_blocks(i * 20, 20), cases[i].sampling);
    start.push_back(random() % 4);
  }
  for (uint32_t step = 0;; ++step) {
    sched::StepPlan plan;
    std::vector<TestSeq*> planned;
    for (uint32_t i = 0; i < seqs.size(); ++i) {
      TestSeq& seq = seqs[i];
      if (step < start[i] || seq.n_generated() == kGenerate) continue;
      if (preempted[i] < 2 && seq.n_computed > 0 && random() % (2 * (1 + seq.n_prompt / chunk)) == 0) {
        seq.n_computed = 0;
        ++preempted[i];
      }
      if (seq.n_computed == 0) model.join(plan, seq);
      seq.plan(plan, chunk);
      planned.push_back(&seq);
    }
    if (planned.empty() && step >= 4) break;
    if (planned.empty()) continue;
    const auto results = model.run(plan);
    for (size_t i = 0; i < planned.size(); ++i) planned[i]->take(results[i]);
  }
  for (uint32_t i = 0; i < seqs.size(); ++i) {
    CAPTURE(i);
    CHECK(seqs[i].hashes == expected[i]);
  }
}

TEST_CASE("a sequence's logits do not depend on its company, its chunks, its blocks, preemption or threads") {
  for (const auto& [file, goldens_file] :
       {std::pair{kSmolLm, "smollm2_goldens.txt"}, std::pair{kGemma, "gemma3_goldens.txt"}}) {
    CAPTURE(file);
    const std::vector<Case> cases = make_cases(read_goldens(goldens_file));
    std::vector<std::vector<uint64_t>> expected;
    for (const uint32_t threads : {2u, 1u}) {
      CAPTURE(threads);
      CpuModel model(file, {.threads = threads, .max_rows = 512, .hash_logits = true});
      for (uint32_t i = 0; i < cases.size(); ++i) {
        auto hashes = alone(model, cases[i]);
        CHECK(hashes.size() == kGenerate);
        if (threads == 2) {
          expected.push_back(std::move(hashes));
        } else if (i < 3) {
          CHECK(hashes == expected[i]);
        }
      }
      // On one thread only a few, for time.
      for (const uint32_t chunk : threads == 2 ? std::vector{1u, 7u, 16u, 48u, 300u} : std::vector{48u})
        check_together(model, cases, expected, chunk, chunk + threads);
    }
  }
}

TEST_CASE("with two steps in flight, where a step's input is the device's own last token, logits are the same") {
  const std::vector<Case> cases = make_cases(read_goldens("smollm2_goldens.txt"));
  CpuModel model(kSmolLm, {.depth = 2, .max_rows = 512, .hash_logits = true});
  for (const Case& c : cases) {
    const std::vector<uint64_t> expected = alone(model, c);
    TestSeq seq(3, c.prompt, some_blocks(60, 20), c.sampling);
    sched::StepPlan plans[2];
    model.join(plans[0], seq);
    seq.plan(plans[0], 300);
    engine::Ticket flight = model.launch(plans[0]);
    for (uint32_t i = 1; i < kGenerate; ++i) {
      sched::StepPlan& plan = plans[i % 2];
      plan.clear();
      plan.seqs.push_back({.id = SeqId{3},
                           .slot = SlotId{3},
                           .n_tokens = 1,
                           .first_position = seq.n_prompt + i - 1,
                           .source = sched::TokenSource::slot,
                           .outputs = sched::Outputs::sample,
                           .token_index = i,
                           .tokens = {},
                           .blocks = seq.blocks});
      plan.n_rows = plan.n_sampled = 1;
      const engine::Ticket next = model.launch(plan);
      seq.take(model.wait(flight)[0]);
      flight = next;
    }
    seq.take(model.wait(flight)[0]);
    CHECK(seq.hashes == expected);
  }
}

}  // namespace
}  // namespace heddle
