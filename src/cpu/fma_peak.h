#pragma once
// n rounds of kFmaPeakChains multiply-adds of 16 lanes, for measuring the machine's f32 peak. Read by the
// per-instruction-set sources: no inline functions.
#include <cstdint>

namespace heddle::cpu {

inline constexpr uint32_t kFmaPeakChains = 12;

namespace scalar {
float fma_chains(uint64_t n);
}
namespace avx2 {
float fma_chains(uint64_t n);
}
namespace avx512 {
float fma_chains(uint64_t n);
}

}  // namespace heddle::cpu
