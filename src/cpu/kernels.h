#pragma once
// The kernel tables of the instruction set that the device runs with. Pure; any thread.
#include "cpu/attend_kernels.h"
#include "cpu/isa.h"
#include "cpu/op_kernels.h"
#include "cpu/sample_kernels.h"

namespace heddle::cpu {

const OpKernels& op_kernels_of(Isa isa);
const AttendKernels& attend_kernels_of(Isa isa);
const SampleKernels& sample_kernels_of(Isa isa);

}  // namespace heddle::cpu
