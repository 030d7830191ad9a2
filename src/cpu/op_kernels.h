#pragma once
// The kernels of the ops that are not linear layers, per instruction set; every set gives the same bits. Rows of f32.
// Sums run over 16 lanes (lane i takes elements i mod 16, ascending) and one fixed tree; division and square root are
// exact; the exponential is one polynomial in FMA. This header is read by the per-instruction-set sources: it has no
// inline functions and includes nothing else of the project but its like. Pure; any thread; never fails.
#include <cstddef>
#include <cstdint>

namespace heddle::cpu {

struct OpKernels {
  // out = x * w / sqrt(mean(x^2) + epsilon), in this order: inv = 1 / sqrt(sum / n + epsilon); (x * inv) * w.
  // y not null: x += y first. out may be x.
  void (*norm)(float* x, const float* y, const float* w, uint32_t n, float epsilon, float* out);
  // x += norm(y)
  void (*norm_add)(const float* y, const float* w, uint32_t n, float epsilon, float* x);
  void (*add)(float* x, const float* y, size_t n);                           // x += y
  void (*scale)(const float* x, float scale, uint32_t n, float* out);        // out = x * scale; may be in place
  void (*silu)(const float* gate, const float* up, uint32_t n, float* out);  // out = gate / (1 + exp(-gate)) * up
  // out = gelu(gate) * up with the tanh form: gelu(x) = x / (1 + exp(-2 u)), u = sqrt(2/pi) (x + 0.044715 x^3)
  void (*gelu_tanh)(const float* gate, const float* up, uint32_t n, float* out);
  // Rotates the half-split pairs (i, i + n/2) of a head in place; cos_sin: [n/2] cosines, then [n/2] sines.
  void (*rope)(float* x, const float* cos_sin, uint32_t n);
  // Halves, to nearest even: k[i * 16] = x[i] (a column of a K tile [n][16]); v[i] = x[i], zeros up to a multiple
  // of 16.
  void (*store_k)(const float* x, uint32_t n, uint16_t* k);
  void (*store_v)(const float* x, uint32_t n, uint16_t* v);
};

}  // namespace heddle::cpu
