// Activation quantisation (act_cell.h), compiled once for every instruction set (HEDDLE_ISA names it).
#if defined(__AVX512VNNI__)
#include "cpu/act_quant_avx512.h"
#elif defined(__AVX2__)
#include "cpu/act_quant_avx2.h"
#else
#include "cpu/act_quant_scalar.h"
#endif
