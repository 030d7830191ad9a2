#include "cpu/isa.h"

#include <fmt/format.h>

#include <cstdlib>
#include <string>
#include <vector>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace heddle::cpu {
namespace {

#if defined(__x86_64__)
struct CpuidLeaf {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

CpuidLeaf cpuid(uint32_t leaf) {
  CpuidLeaf out;
  __get_cpuid_count(leaf, 0, &out.eax, &out.ebx, &out.ecx, &out.edx);
  return out;
}

uint64_t enabled_states() {  // XCR0: register files that the operating system saves and restores
  uint32_t low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<uint64_t>(high) << 32) | low;
}

constexpr bool has(uint32_t word, uint32_t bits) { return (word & bits) == bits; }

std::vector<Isa> detect() {
  std::vector<Isa> isas{Isa::scalar};
  const CpuidLeaf basic = cpuid(1), extended = cpuid(7);
  if (!has(basic.ecx, bit_OSXSAVE)) return isas;
  constexpr uint64_t kYmm = 0x6, kZmm = 0xe6;
  const uint64_t states = enabled_states();
  if (!has(basic.ecx, bit_AVX | bit_FMA | bit_F16C) || !has(extended.ebx, bit_AVX2) || (states & kYmm) != kYmm) {
    return isas;
  }
  isas.push_back(Isa::avx2);
  if (has(extended.ebx, bit_AVX512F | bit_AVX512BW | bit_AVX512VL | bit_AVX512DQ) &&
      has(extended.ecx, bit_AVX512VNNI) && (states & kZmm) == kZmm) {
    isas.push_back(Isa::avx512);
  }
  return isas;
}
#else
std::vector<Isa> detect() { return {Isa::scalar}; }
#endif

}  // namespace

std::string_view isa_name(Isa isa) {
  switch (isa) {
    case Isa::scalar:
      return "scalar";
    case Isa::avx2:
      return "avx2";
    case Isa::avx512:
      return "avx512";
  }
  return "unknown";
}

std::span<const Isa> available_isas() {
  static const std::vector<Isa> isas = detect();
  return isas;
}

Result<Isa> choose_isa(std::string_view wanted) {
  std::string_view source = "instruction set";
  if (wanted.empty()) {
    const char* value = std::getenv("HEDDLE_ISA");
    if (value == nullptr || *value == '\0') return available_isas().back();
    wanted = value;
    source = "HEDDLE_ISA";
  }
  for (const Isa isa : {Isa::scalar, Isa::avx2, Isa::avx512}) {
    if (isa_name(isa) != wanted) continue;
    for (const Isa mine : available_isas()) {
      if (mine == isa) return isa;
    }
    return fail(fmt::format("{}: this machine cannot run {}, its best is {}", source, wanted,
                            isa_name(available_isas().back())));
  }
  return fail(fmt::format("{}: \"{}\" is none of scalar, avx2, avx512", source, wanted));
}

}  // namespace heddle::cpu
