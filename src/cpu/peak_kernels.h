#pragma once
// The loop behind integer_peak, per instruction set. No inline functions, no other includes (see linear_kernels.h).
#include <cstdint>

namespace heddle::cpu {

namespace scalar {
uint64_t integer_products(uint32_t steps);  // does steps times some work, returns how many products that was
}
namespace avx2 {
uint64_t integer_products(uint32_t steps);
}
namespace avx512 {
uint64_t integer_products(uint32_t steps);
}

}  // namespace heddle::cpu
