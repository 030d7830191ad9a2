// The kernels of op_kernels.h, compiled once for every instruction set (HEDDLE_ISA names it).
#include "cpu/lanes.h"
#include "cpu/op_kernels.h"

namespace heddle::cpu::HEDDLE_ISA {
namespace {

// Calls whole(i) for the full groups of 16 and part(i, n) for what is left.
template <class Whole, class Part>
HEDDLE_INLINE void for_lanes(size_t n, Whole whole, Part part) {
  size_t i = 0;
  for (; i + 16 <= n; i += 16) whole(i);
  if (i < n) part(i, static_cast<uint32_t>(n - i));
}

HEDDLE_INLINE Lanes inverse_rms(Lanes squares, uint32_t n, float epsilon) {
  const float mean = fold_sum(squares) / static_cast<float>(n);
  return splat(1.0f / __builtin_sqrtf(mean + epsilon));
}

HEDDLE_INLINE Lanes sum_of_squares(const float* x, uint32_t n) {
  Lanes sum = splat(0.0f);
  for_lanes(
      n,
      [&](size_t i) {
        const Lanes a = load(x + i);
        sum = fma(a, a, sum);
      },
      [&](size_t i, uint32_t rest) {
        const Lanes a = load_part(x + i, rest, 0.0f);
        sum = fma(a, a, sum);
      });
  return sum;
}

void add_rows(float* x, const float* y, size_t n) {
  for_lanes(
      n, [&](size_t i) { store(x + i, add(load(x + i), load(y + i))); },
      [&](size_t i, uint32_t rest) {
        store_part(x + i, add(load_part(x + i, rest, 0.0f), load_part(y + i, rest, 0.0f)), rest);
      });
}

void norm(float* x, const float* y, const float* w, uint32_t n, float epsilon, float* out) {
  if (y != nullptr) add_rows(x, y, n);
  const Lanes inverse = inverse_rms(sum_of_squares(x, n), n, epsilon);
  for_lanes(
      n, [&](size_t i) { store(out + i, mul(mul(load(x + i), inverse), load(w + i))); },
      [&](size_t i, uint32_t rest) {
        store_part(out + i, mul(mul(load_part(x + i, rest, 0.0f), inverse), load_part(w + i, rest, 0.0f)), rest);
      });
}

void norm_add(const float* y, const float* w, uint32_t n, float epsilon, float* x) {
  const Lanes inverse = inverse_rms(sum_of_squares(y, n), n, epsilon);
  for_lanes(
      n, [&](size_t i) { store(x + i, add(load(x + i), mul(mul(load(y + i), inverse), load(w + i)))); },
      [&](size_t i, uint32_t rest) {
        const Lanes normed = mul(mul(load_part(y + i, rest, 0.0f), inverse), load_part(w + i, rest, 0.0f));
        store_part(x + i, add(load_part(x + i, rest, 0.0f), normed), rest);
      });
}

void scale(const float* x, float factor, uint32_t n, float* out) {
  const Lanes f = splat(factor);
  for_lanes(
      n, [&](size_t i) { store(out + i, mul(load(x + i), f)); },
      [&](size_t i, uint32_t rest) { store_part(out + i, mul(load_part(x + i, rest, 0.0f), f), rest); });
}

// x / (1 + exp(-z))
HEDDLE_INLINE Lanes times_sigmoid(Lanes x, Lanes z) { return div(x, add(splat(1.0f), exp(sub(splat(0.0f), z)))); }

HEDDLE_INLINE Lanes silu_of(Lanes x) { return times_sigmoid(x, x); }

HEDDLE_INLINE Lanes gelu_tanh_of(Lanes x) {
  const Lanes cubic = mul(mul(x, x), x);
  // 2 sqrt(2 / pi) (x + 0.044715 x^3)
  return times_sigmoid(x, mul(splat(1.59576912160573f), fma(splat(0.044715f), cubic, x)));
}

template <class Activate>
HEDDLE_INLINE void gated(const float* gate, const float* up, uint32_t n, float* out, Activate activate) {
  for_lanes(
      n, [&](size_t i) { store(out + i, mul(activate(load(gate + i)), load(up + i))); },
      [&](size_t i, uint32_t rest) {
        store_part(out + i, mul(activate(load_part(gate + i, rest, 0.0f)), load_part(up + i, rest, 0.0f)), rest);
      });
}

void silu(const float* gate, const float* up, uint32_t n, float* out) {
  gated(gate, up, n, out, [](Lanes x) { return silu_of(x); });
}

void gelu_tanh(const float* gate, const float* up, uint32_t n, float* out) {
  gated(gate, up, n, out, [](Lanes x) { return gelu_tanh_of(x); });
}

void rope(float* x, const float* cos_sin, uint32_t n) {
  const uint32_t half = n / 2;
  float* y = x + half;
  const float* sin = cos_sin + half;
  const auto rotate = [](Lanes a, Lanes b, Lanes c, Lanes s, Lanes& a_out, Lanes& b_out) {
    a_out = sub(mul(a, c), mul(b, s));
    b_out = add(mul(b, c), mul(a, s));
  };
  for_lanes(
      half,
      [&](size_t i) {
        Lanes a, b;
        rotate(load(x + i), load(y + i), load(cos_sin + i), load(sin + i), a, b);
        store(x + i, a);
        store(y + i, b);
      },
      [&](size_t i, uint32_t rest) {
        Lanes a, b;
        rotate(load_part(x + i, rest, 0.0f), load_part(y + i, rest, 0.0f), load_part(cos_sin + i, rest, 0.0f),
               load_part(sin + i, rest, 0.0f), a, b);
        store_part(x + i, a, rest);
        store_part(y + i, b, rest);
      });
}

void store_k(const float* x, uint32_t n, uint16_t* k) {
  uint16_t halves[16];
  const auto spread = [&](size_t i, Lanes a, uint32_t count) {
    store_half(halves, a);
    for (uint32_t j = 0; j < count; ++j) k[(i + j) * 16] = halves[j];
  };
  for_lanes(
      n, [&](size_t i) { spread(i, load(x + i), 16); },
      [&](size_t i, uint32_t rest) { spread(i, load_part(x + i, rest, 0.0f), rest); });
}

void store_v(const float* x, uint32_t n, uint16_t* v) {
  for_lanes(
      n, [&](size_t i) { store_half(v + i, load(x + i)); },
      [&](size_t i, uint32_t rest) { store_half(v + i, load_part(x + i, rest, 0.0f)); });
}

}  // namespace

extern const OpKernels op_kernels;
const OpKernels op_kernels{norm, norm_add, add_rows, scale, silu, gelu_tanh, rope, store_k, store_v};

}  // namespace heddle::cpu::HEDDLE_ISA
