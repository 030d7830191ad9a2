// Data parallel engines on a real model: runners with one copy of the weights on one team, whose steps interleave in
// every way the loop can make them, compute what one alone computes.
#include <random>

#include "reference/cpu_model.h"

using namespace heddle;

namespace {

// Four sequences with prompts of their own; `family` tells two sets apart.
std::vector<TestSeq> sequences(uint32_t family) {
  std::mt19937 random(70 + family);
  std::uniform_int_distribution<TokenId> any(20, 40000);
  std::vector<TestSeq> seqs;
  for (uint32_t i = 0; i < 4; ++i) {
    std::vector<TokenId> prompt(5 + 23 * i + 7 * family);
    for (TokenId& id : prompt) id = any(random);
    seqs.emplace_back(i, prompt, some_blocks(i * 8, 8),
                      device::SlotSampling{.temperature = i % 2 == 0 ? 0.0f : 1.0f, .seed = 10 * family + i});
  }
  return seqs;
}

// One step for all of them: a chunk of the prompt, or the next token.
void plan_step(CpuModel& model, std::vector<TestSeq>& seqs, sched::StepPlan& plan, bool first, uint32_t runner) {
  plan.clear();
  for (TestSeq& seq : seqs) {
    if (first) model.join(plan, seq, runner);
    seq.plan(plan, 16);
  }
}

void take(std::vector<TestSeq>& seqs, const std::vector<engine::SeqResult>& results) {
  for (size_t i = 0; i < seqs.size(); ++i) seqs[i].take(results[i]);
}

std::vector<std::vector<uint64_t>> hashes_of(const std::vector<TestSeq>& seqs) {
  std::vector<std::vector<uint64_t>> hashes;
  for (const TestSeq& seq : seqs) hashes.push_back(seq.hashes);
  return hashes;
}

constexpr uint32_t kSteps = 14;

}  // namespace

TEST_CASE("interleaved steps of runners that share team and weights give the bits of a runner alone") {
  std::vector<std::vector<std::vector<uint64_t>>> alone;
  for (uint32_t family = 0; family < 3; ++family) {
    CpuModel model(kSmolLm, {.hash_logits = true});
    std::vector<TestSeq> seqs = sequences(family);
    sched::StepPlan plan;
    for (uint32_t step = 0; step < kSteps; ++step) {
      plan_step(model, seqs, plan, step == 0, 0);
      take(seqs, model.run(plan));
    }
    alone.push_back(hashes_of(seqs));
  }
  CHECK(alone[0] != alone[1]);

  const uint32_t seed = 80;
  INFO("seed ", seed);
  std::mt19937 random(seed);
  for (const uint32_t threads : {1u, 2u}) {
    CAPTURE(threads);
    CpuModel model(kSmolLm, {.threads = threads, .hash_logits = true}, 3);
    const size_t weights = model.weight_bytes();
    std::vector<std::vector<TestSeq>> seqs;
    for (uint32_t family = 0; family < 3; ++family) seqs.push_back(sequences(family));
    sched::StepPlan plans[3];
    engine::Ticket tickets[3];
    // Launches, samples and waits of the three in any order that keeps each one's own.
    uint32_t n_steps[3] = {}, phase[3] = {};
    const auto busy = [&] { return n_steps[0] < kSteps || n_steps[1] < kSteps || n_steps[2] < kSteps; };
    while (busy()) {
      const auto i = static_cast<uint32_t>(random() % 3);
      if (n_steps[i] == kSteps) continue;
      if (phase[i] == 0) {
        plan_step(model, seqs[i], plans[i], n_steps[i] == 0, i);
        tickets[i] = model.runner(i).launch(plans[i]);
      } else if (phase[i] == 1) {
        model.runner(i).sample(tickets[i], {});
      } else {
        take(seqs[i], model.wait(tickets[i], i));
        ++n_steps[i];
      }
      phase[i] = (phase[i] + 1) % 3;
    }
    for (uint32_t family = 0; family < 3; ++family) CHECK(hashes_of(seqs[family]) == alone[family]);
    CHECK(model.weight_bytes() == weights);
  }
}
