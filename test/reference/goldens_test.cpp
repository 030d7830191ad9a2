// The CPU device against transformers: --compute f32 in numbers, the normal path in words.
#include <doctest/doctest.h>

#include "model/goldens.h"
#include "reference/cpu_model.h"

namespace heddle {
namespace {

double check_rows(CpuModel& model, const GoldenPrompt& prompt, double tolerance) {
  TestSeq seq(0, prompt.ids, some_blocks(0, 50));
  double worst = 0;
  while (seq.n_computed < prompt.ids.size()) {
    sched::StepPlan plan;
    if (seq.n_computed == 0) model.join(plan, seq);
    const uint32_t first = seq.n_computed;
    seq.plan(plan, 64, sched::Outputs::all_logits);
    const engine::Ticket ticket = model.launch(plan);
    model.wait(ticket);
    const auto logits = model.runner().logits(ticket);
    for (const GoldenRow& row : prompt.rows) {
      if (row.position < first || row.position >= seq.n_computed) continue;
      CAPTURE(prompt.name);
      CAPTURE(row.position);
      const double difference =
          worst_difference(row, logits.subspan(size_t{row.position - first} * model.vocab_size(), model.vocab_size()));
      CHECK(difference < tolerance);
      worst = std::max(worst, difference);
    }
  }
  return worst;
}

std::vector<TokenId> greedy(CpuModel& model, const std::vector<TokenId>& ids, size_t n) {
  TestSeq seq(1, ids, some_blocks(60, 20), {.temperature = 0.0f});
  while (seq.n_generated() < n) {
    sched::StepPlan plan;
    if (seq.n_computed == 0) model.join(plan, seq);
    seq.plan(plan, 64);
    seq.take(model.run(plan)[0]);
  }
  return seq.generated();
}

TEST_CASE("compute f32 gives the log-probabilities of transformers to 1e-3, and its greedy tokens") {
  for (const auto& [file, goldens_file] :
       {std::pair{kSmolLm, "smollm2_goldens.txt"}, std::pair{kGemma, "gemma3_goldens.txt"}}) {
    CAPTURE(file);
    CpuModel model(file, {.compute = device::Compute::f32, .all_logits_rows = 64});
    double worst = 0;
    for (const GoldenPrompt& prompt : read_goldens(goldens_file).prompts) {
      worst = std::max(worst, check_rows(model, prompt, 1e-3));
      CAPTURE(prompt.name);
      if (!prompt.greedy.empty()) CHECK(greedy(model, prompt.ids, prompt.greedy.size()) == prompt.greedy);
    }
    MESSAGE(file << ": worst difference in log-probability " << worst);
  }
}

TEST_CASE("the normal path says Paris: as a completion, and in a chat") {
  // Ids of the goldens' own greedy answers: " Paris" and "The capital of France is Paris.<|im_end|>".
  const Goldens goldens = read_goldens("smollm2_goldens.txt");
  CpuModel model(kSmolLm, {});
  const auto france = goldens.prompt("france");
  CHECK(greedy(model, france.ids, 1)[0] == france.greedy[0]);
  const auto chat = goldens.prompt("chat");
  const std::vector<TokenId> answer = greedy(model, chat.ids, 8);
  CHECK(answer == std::vector<TokenId>(chat.greedy.begin(), chat.greedy.begin() + 8));
}

}  // namespace
}  // namespace heddle
