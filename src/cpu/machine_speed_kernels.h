#pragma once
// Loops that do nothing but one kind of work, for machine_speed.cpp. Each returns a value that depends on all of it.
#include <cstddef>
#include <cstdint>

namespace heddle::cpu {

struct SpeedKernels {
  uint64_t (*int8)(uint64_t n);  // n rounds of int8_macs multiply-adds
  uint64_t int8_macs;
  uint64_t (*f32)(uint64_t n);
  uint64_t f32_macs;
  uint64_t (*read)(const uint64_t* data, size_t n);  // n a multiple of 64
};

namespace scalar {
SpeedKernels speed_kernels();
}
namespace avx2 {
SpeedKernels speed_kernels();
}
namespace avx512 {
SpeedKernels speed_kernels();
}

}  // namespace heddle::cpu
