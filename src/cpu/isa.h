#pragma once
// Which instruction set the CPU kernels run with. Every set gives the same bits (batch-invariance), so the choice is
// one of speed alone. Detection covers the operating system's part too (XCR0). Plain values; any thread.
#include <cstdint>
#include <span>
#include <string_view>

#include "base/result.h"

namespace heddle::cpu {

enum class Isa : uint8_t {
  scalar,  // portable C++
  avx2,    // AVX2, FMA, F16C
  avx512,  // AVX-512 F, BW, VL, DQ and VNNI, beside what avx2 needs
};

std::string_view isa_name(Isa isa);

// What this machine can run, worst first; always begins with scalar.
std::span<const Isa> available_isas();

// The best one, or the one named by `wanted` ("scalar", "avx2", "avx512"). An empty `wanted` asks the environment
// variable HEDDLE_ISA. A name that is unknown, or that this machine cannot run, is an error.
Result<Isa> choose_isa(std::string_view wanted = {});

}  // namespace heddle::cpu
