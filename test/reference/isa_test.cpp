// Every instruction set computes the same bits on the real models, from embedding to logits.
#include <doctest/doctest.h>

#include "model/goldens.h"
#include "reference/cpu_model.h"

namespace heddle {
namespace {

std::vector<uint64_t> hashes(const char* file, cpu::Isa isa, device::Compute compute, std::vector<TokenId> ids,
                             uint32_t n_generated) {
  CpuModel model(file, {.compute = compute, .isa = isa, .hash_logits = true});
  TestSeq seq(0, std::move(ids), some_blocks(0, 20), {.temperature = 0.0f});
  while (seq.n_generated() < n_generated) {
    sched::StepPlan plan;
    if (seq.n_computed == 0) model.join(plan, seq);
    seq.plan(plan, 64);
    seq.take(model.run(plan)[0]);
  }
  return seq.hashes;
}

TEST_CASE("all instruction sets give the same logits, bit for bit, on both models") {
  for (const auto& [file, goldens_file] :
       {std::pair{kSmolLm, "smollm2_goldens.txt"}, std::pair{kGemma, "gemma3_goldens.txt"}}) {
    const Goldens goldens = read_goldens(goldens_file);
    const std::vector<TokenId> code = goldens.prompt("code").ids;
    const std::vector<TokenId> france = goldens.prompt("france").ids;
    const cpu::Isa best = cpu::available_isas().back();
    const auto expected = hashes(file, best, device::Compute::automatic, code, 4);
    const auto expected_short = hashes(file, best, device::Compute::automatic, france, 2);
    for (const cpu::Isa isa : cpu::available_isas()) {
      CAPTURE(file);
      CAPTURE(cpu::isa_name(isa));
      if (isa == cpu::Isa::scalar) {  // many times slower: a short run
        CHECK(hashes(file, isa, device::Compute::automatic, france, 2) == expected_short);
      } else {
        CHECK(hashes(file, isa, device::Compute::automatic, code, 4) == expected);
      }
    }
  }
}

}  // namespace
}  // namespace heddle
