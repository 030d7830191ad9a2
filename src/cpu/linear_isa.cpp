// The linear layer's kernels, compiled once for every instruction set (HEDDLE_ISA names it).
#if defined(__AVX512VNNI__)
#include "cpu/linear_avx512.h"
#elif defined(__AVX2__)
#include "cpu/linear_avx2.h"
#else
#include "cpu/linear_scalar.h"
#endif
