#include "cpu/kernels.h"

namespace heddle::cpu {

namespace scalar {
extern const OpKernels op_kernels;
extern const AttendKernels attend_kernels;
extern const SampleKernels sample_kernels;
}  // namespace scalar
namespace avx2 {
extern const OpKernels op_kernels;
extern const AttendKernels attend_kernels;
extern const SampleKernels sample_kernels;
}  // namespace avx2
namespace avx512 {
extern const OpKernels op_kernels;
extern const AttendKernels attend_kernels;
extern const SampleKernels sample_kernels;
}  // namespace avx512

const OpKernels& op_kernels_of(Isa isa) {
  switch (isa) {
    case Isa::avx512:
      return avx512::op_kernels;
    case Isa::avx2:
      return avx2::op_kernels;
    case Isa::scalar:
      break;
  }
  return scalar::op_kernels;
}

const AttendKernels& attend_kernels_of(Isa isa) {
  switch (isa) {
    case Isa::avx512:
      return avx512::attend_kernels;
    case Isa::avx2:
      return avx2::attend_kernels;
    case Isa::scalar:
      break;
  }
  return scalar::attend_kernels;
}

const SampleKernels& sample_kernels_of(Isa isa) {
  switch (isa) {
    case Isa::avx512:
      return avx512::sample_kernels;
    case Isa::avx2:
      return avx2::sample_kernels;
    case Isa::scalar:
      break;
  }
  return scalar::sample_kernels;
}

}  // namespace heddle::cpu
