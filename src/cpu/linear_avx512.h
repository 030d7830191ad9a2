#pragma once
// Linear layer for AVX-512 with VNNI. Included by linear_isa.cpp alone.
//
// Quantised: a tile is one panel (16 rows in 16 lanes) times T <= 16 tokens. Per group of 32 columns the weights are
// unpacked into 8 registers once; every token then takes 8 vpdpbusd with its codes broadcast from memory, one vpdpwssd
// that adds offset * sum(q) - zero * sum(v), and a multiplication and one or two FMAs into its accumulator: 11 or 12
// operations on the two multiplying ports for 512 products, so 73 % or 67 % of the vpdpbusd peak is the ceiling.
// Floats: P panels times T tokens, P * T accumulators, one FMA each a column.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "cpu/linear_kernels.h"

namespace heddle::cpu::HEDDLE_ISA {
namespace {

template <class T>
inline T load(const void* at) {
  T value;
  __builtin_memcpy(&value, at, sizeof value);
  return value;
}

// acc + sum over i of w[4 lane + i] * a[i], with a read from memory for all lanes. Written in assembler because g++ 12
// does not fold the broadcast into the instruction, and volatile because its scheduler undoes the interleaving of
// tokens.
inline __m512i dot_bytes(__m512i acc, __m512i w, const void* a) {
  __asm__ volatile("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(w), "m"(*static_cast<const int32_t*>(a)));
  return acc;
}
inline __m512i dot_words(__m512i acc, __m512i w, const void* a) {
  __asm__ volatile("vpdpwssd %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(w), "m"(*static_cast<const int32_t*>(a)));
  return acc;
}
inline __m512 halves(const uint8_t* at) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
}
inline __m512i words_i8(const uint8_t* at) {
  return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
}
inline __m512i words_u8(const uint8_t* at) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
}

// 32 columns of 16 rows: w[j] holds columns 4 j ... 4 j + 3, four bytes a lane.
template <Codes kCodes>
inline void unpack(const uint8_t* p, __m512i (&w)[8]) {
  if constexpr (kCodes == Codes::u8) {
    for (int j = 0; j < 8; ++j) w[j] = _mm512_loadu_si512(p + 64 * j);
    return;
  }
  const __m512i low = _mm512_set1_epi8(15);
  for (int j = 0; j < 4; ++j) {
    const __m512i x = _mm512_loadu_si512(p + 64 * j);
    w[j] = _mm512_and_si512(x, low);
    w[j + 4] = _mm512_and_si512(_mm512_srli_epi16(x, 4), low);
  }
  if constexpr (kCodes == Codes::u5 || kCodes == Codes::u6) {
    const __m512i bits = _mm512_loadu_si512(p + 256), bit4 = _mm512_set1_epi8(16);
    for (int j = 0; j < 8; ++j) {
      const __m512i moved = j < 4 ? _mm512_slli_epi16(bits, 4 - j) : _mm512_srli_epi16(bits, j - 4);
      w[j] = _mm512_ternarylogic_epi32(w[j], moved, bit4, 0xf8);  // w | (moved & bit4)
    }
  }
  if constexpr (kCodes == Codes::u6) {
    const __m512i bits = _mm512_loadu_si512(p + 320), bit5 = _mm512_set1_epi8(32);
    for (int j = 0; j < 8; ++j) {
      const __m512i moved = j < 5 ? _mm512_slli_epi16(bits, 5 - j) : _mm512_srli_epi16(bits, j - 5);
      w[j] = _mm512_ternarylogic_epi32(w[j], moved, bit5, 0xf8);
    }
  }
}

// Per lane the sum of the codes in w[first ... last), as int32. Bytes are added as bytes where they cannot overflow.
template <Codes kCodes>
inline __m512i code_sum(const __m512i (&w)[8], int first, int last) {
  const __m512i ones = _mm512_set1_epi8(1);
  constexpr int kAtOnce = kCodes == Codes::u8 ? 1 : kCodes == Codes::u6 ? 4 : 8;
  __m512i sum = _mm512_setzero_si512(), other = sum;  // two chains, since a dot takes four cycles
#pragma GCC unroll 8
  for (int j = first; j < last; j += kAtOnce) {
    __m512i bytes = w[j];
    for (int i = j + 1; i < j + kAtOnce && i < last; ++i) bytes = _mm512_add_epi8(bytes, w[i]);
    __m512i& chain = (j - first) / kAtOnce % 2 == 0 ? sum : other;
    chain = _mm512_dpbusd_epi32(chain, bytes, ones);
  }
  return kAtOnce == 1 ? _mm512_add_epi32(sum, other) : sum;
}

struct TileOut {
  float* out;
  size_t ldo;
  const float* bias;
  const float* residual;
  size_t ldr;
  __mmask16 lanes;
};

inline void store(const TileOut& to, size_t token, __m512 v) {
  if (to.bias != nullptr) v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(to.lanes, to.bias));
  if (to.residual != nullptr) v = _mm512_add_ps(_mm512_maskz_loadu_ps(to.lanes, to.residual + token * to.ldr), v);
  _mm512_mask_storeu_ps(to.out + token * to.ldo, to.lanes, v);
}

template <Codes kC, bool kK, bool kMin, int kGroup, int kZero>
struct Form {
  static constexpr Codes kCodes = kC;
  static constexpr bool kKFormat = kK, kHasMin = kMin;
  static constexpr int kScaleGroup = kGroup, kZeroCode = kZero;
  static constexpr int kCodeBytes = kC == Codes::u8 ? 512 : kC == Codes::u4 ? 256 : kC == Codes::u5 ? 320 : 384;
};

// With many tokens a group takes too long for the hardware's stream detection to run ahead of it.
constexpr int kPrefetchAhead = 2048;
template <class F, int T>
inline __attribute__((always_inline)) const uint8_t* group_of_32(const uint8_t* p, const ActCell* cell, __m512 d_super,
                                                                 __m512 min_super, __m512 (&acc)[T]) {
  constexpr int kHalves = 32 / F::kScaleGroup, kVectors = 8 / kHalves;
  constexpr int kChunks = (T + 3) / 4;  // of up to 4 tokens, whose chains interleave
  __m512i w[8];
  unpack<F::kCodes>(p, w);
  if constexpr (T > 4)
    for (int i = 0; i < F::kCodeBytes; i += 64)
      _mm_prefetch(reinterpret_cast<const char*>(p + kPrefetchAhead + i), _MM_HINT_T0);
  const uint8_t* scales = p + F::kCodeBytes;
  __m512i correction[kHalves];  // per lane (zero or sum of codes, the other): the words that neg_sum and offset meet
  __m512 d[kHalves];
  for (int h = 0; h < kHalves; ++h) {
    const __m512i sum = code_sum<F::kCodes>(w, h * kVectors, (h + 1) * kVectors);
    if constexpr (kHalves == 1) {
      correction[h] = _mm512_or_si512(_mm512_slli_epi32(sum, 16), _mm512_set1_epi32(F::kZeroCode));
    } else {
      // Half 0 meets (offset, neg_half_sum[0]); half 1 only the offset of that pair.
      correction[h] = h == 0 ? _mm512_or_si512(sum, _mm512_set1_epi32(F::kZeroCode << 16)) : sum;
    }
    if constexpr (F::kKFormat) d[h] = _mm512_mul_ps(d_super, _mm512_cvtepi32_ps(words_i8(scales + 16 * h)));
  }
  if constexpr (!F::kKFormat) d[0] = halves(scales);
  __m512 m = _mm512_setzero_ps();
  __m512i mins = _mm512_setzero_si512();
  if constexpr (F::kHasMin && kHalves == 1) {
    m = F::kKFormat ? _mm512_mul_ps(min_super, _mm512_cvtepi32_ps(words_u8(scales + 16))) : halves(scales + 32);
  } else if constexpr (F::kHasMin) {
    mins = _mm512_or_si512(words_u8(scales + 32), _mm512_slli_epi32(words_u8(scales + 48), 16));
  }
#pragma GCC unroll 4
  for (int chunk = 0; chunk < kChunks; ++chunk) {
    const int first = chunk * T / kChunks, n = (chunk + 1) * T / kChunks - first;
    __m512i dot[kHalves][4];
#pragma GCC unroll 2
    for (int h = 0; h < kHalves; ++h) {
#pragma GCC unroll 4
      for (int t = 0; t < n; ++t) dot[h][t] = _mm512_setzero_si512();
#pragma GCC unroll 8
      for (int j = h * kVectors; j < (h + 1) * kVectors; ++j) {
#pragma GCC unroll 4
        for (int t = 0; t < n; ++t) dot[h][t] = dot_bytes(dot[h][t], w[j], cell[first + t].codes + 4 * j);
      }
#pragma GCC unroll 4
      for (int t = 0; t < n; ++t) {
        const ActCell* c = cell + first + t;
        if constexpr (kHalves == 1) {
          dot[h][t] = dot_words(dot[h][t], correction[h], &c->neg_sum);
        } else {
          dot[h][t] = dot_words(dot[h][t], correction[h], &c->offset);
          if (h == 1 && F::kZeroCode != 0) {
            dot[h][t] = dot_words(dot[h][t], _mm512_set1_epi32(F::kZeroCode << 16), &c->neg_half_sum);
          }
        }
      }
    }
#pragma GCC unroll 4
    for (int t = 0; t < n; ++t) {
      const ActCell* c = cell + first + t;
      __m512& a = acc[first + t];
#pragma GCC unroll 2
      for (int h = 0; h < kHalves; ++h) {
        a = _mm512_fmadd_ps(_mm512_mul_ps(d[h], _mm512_set1_ps(c->scale)), _mm512_cvtepi32_ps(dot[h][t]), a);
      }
      if constexpr (F::kHasMin && kHalves == 1) {
        const __m512 sum = _mm512_set1_ps(c->sum);
        a = F::kKFormat ? _mm512_fnmadd_ps(m, sum, a) : _mm512_fmadd_ps(m, sum, a);
      } else if constexpr (F::kHasMin) {  // the words are -(sum of v): this is the negated product of linear.h
        const __m512i dot_mins = dot_words(_mm512_setzero_si512(), mins, &c->neg_half_sum);
        a = _mm512_fmadd_ps(_mm512_mul_ps(min_super, _mm512_set1_ps(c->scale)), _mm512_cvtepi32_ps(dot_mins), a);
      }
    }
  }
  constexpr int kScaleBytes = (F::kKFormat ? 16 * kHalves : 32) * (F::kHasMin ? 2 : 1);
  return scales + kScaleBytes;
}

template <class F, int T>
void cells_tile(const uint8_t* p, const ActCell* cell, uint32_t n_groups, const TileOut& to) {
  __m512 acc[T];
#pragma GCC unroll 16
  for (int t = 0; t < T; ++t) acc[t] = _mm512_setzero_ps();
  if constexpr (F::kKFormat) {
    for (uint32_t g = 0; g < n_groups; g += 8) {
      const __m512 d = halves(p);
      p += 32;
      __m512 min = _mm512_setzero_ps();
      if constexpr (F::kHasMin) {
        min = halves(p);
        p += 32;
      }
      for (int i = 0; i < 8; ++i, cell += kTileRows) p = group_of_32<F, T>(p, cell, d, min, acc);
    }
  } else {
    const __m512 none = _mm512_setzero_ps();
    for (uint32_t g = 0; g < n_groups; ++g, cell += kTileRows) p = group_of_32<F, T>(p, cell, none, none, acc);
  }
#pragma GCC unroll 16
  for (int t = 0; t < T; ++t) store(to, static_cast<size_t>(t), acc[t]);
}

using CellsTile = void (*)(const uint8_t*, const ActCell*, uint32_t, const TileOut&);

template <class F>
inline constexpr CellsTile kCellsTiles[kTileRows] = {
    cells_tile<F, 1>,  cells_tile<F, 2>,  cells_tile<F, 3>,  cells_tile<F, 4>,  cells_tile<F, 5>,  cells_tile<F, 6>,
    cells_tile<F, 7>,  cells_tile<F, 8>,  cells_tile<F, 9>,  cells_tile<F, 10>, cells_tile<F, 11>, cells_tile<F, 12>,
    cells_tile<F, 13>, cells_tile<F, 14>, cells_tile<F, 15>, cells_tile<F, 16>};

// By token count less one; null for float formats.
const CellsTile* cells_tiles(PackFormat f) {
  switch (f.codes) {
    case Codes::u4:
      if (!f.k_format)
        return f.has_min ? kCellsTiles<Form<Codes::u4, false, true, 32, 0>>
                         : kCellsTiles<Form<Codes::u4, false, false, 32, 8>>;
      if (f.group == 32) return kCellsTiles<Form<Codes::u4, true, true, 32, 0>>;
      return f.has_min ? kCellsTiles<Form<Codes::u4, true, true, 16, 0>>
                       : kCellsTiles<Form<Codes::u4, true, false, 16, 4>>;
    case Codes::u5:
      if (f.k_format) return kCellsTiles<Form<Codes::u5, true, true, 32, 0>>;
      return f.has_min ? kCellsTiles<Form<Codes::u5, false, true, 32, 0>>
                       : kCellsTiles<Form<Codes::u5, false, false, 32, 16>>;
    case Codes::u6:
      return kCellsTiles<Form<Codes::u6, true, false, 16, 32>>;
    case Codes::u8:
      return kCellsTiles<Form<Codes::u8, false, false, 32, 128>>;
    case Codes::f32:
    case Codes::f16:
    case Codes::bf16:
      return nullptr;
  }
  return nullptr;
}

template <Codes kCodes>
inline __m512 float_weights(const uint8_t* panel, size_t k) {
  if constexpr (kCodes == Codes::f32) return _mm512_loadu_ps(panel + 64 * k);
  if constexpr (kCodes == Codes::f16) return halves(panel + 32 * k);
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(panel + 32 * k));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

// P whole panels (a short last one: to.lanes) times T tokens.
template <Codes kCodes, int P, int T>
void floats_tile(const uint8_t* panels, size_t panel_bytes, const float* x, size_t ldx, size_t cols, const TileOut& to,
                 __mmask16 last_lanes) {
  __m512 acc[P][T];
  for (int p = 0; p < P; ++p) {
    for (int t = 0; t < T; ++t) acc[p][t] = _mm512_setzero_ps();
  }
  for (size_t k = 0; k < cols; ++k) {
    __m512 w[P];
    for (int p = 0; p < P; ++p) w[p] = float_weights<kCodes>(panels + static_cast<size_t>(p) * panel_bytes, k);
    for (int t = 0; t < T; ++t) {
      const __m512 a = _mm512_set1_ps(x[static_cast<size_t>(t) * ldx + k]);
      for (int p = 0; p < P; ++p) acc[p][t] = _mm512_fmadd_ps(a, w[p], acc[p][t]);
    }
  }
  for (int p = 0; p < P; ++p) {
    TileOut panel = to;
    panel.lanes = p == P - 1 ? last_lanes : to.lanes;
    panel.out += 16 * p;
    if (to.bias != nullptr) panel.bias += 16 * p;
    if (to.residual != nullptr) panel.residual += 16 * p;
    for (int t = 0; t < T; ++t) store(panel, static_cast<size_t>(t), acc[p][t]);
  }
}

inline __mmask16 lanes_of(const LinearRun& run, uint32_t panel) {
  const uint32_t width = run.n_columns - panel * kPanelRows;
  return width >= kPanelRows ? static_cast<__mmask16>(0xffff) : static_cast<__mmask16>((1u << width) - 1u);
}

inline TileOut tile_out(const LinearRun& run, uint32_t panel, size_t row) {
  const size_t column = static_cast<size_t>(panel) * kPanelRows;
  return {run.out + row * run.ldo + column,
          run.ldo,
          run.bias == nullptr ? nullptr : run.bias + column,
          run.residual == nullptr ? nullptr : run.residual + row * run.ldr + column,
          run.ldr,
          lanes_of(run, panel)};
}

template <Codes kCodes, int P, int T>
void floats_rows(const LinearRun& run, size_t row) {
  const uint32_t n_panels = (run.n_columns + kPanelRows - 1) / kPanelRows;
  const float* x = run.x + row * run.ldx;
  uint32_t panel = 0;
  for (; panel + P <= n_panels; panel += P) {
    TileOut to = tile_out(run, panel, row);
    to.lanes = static_cast<__mmask16>(0xffff);
    floats_tile<kCodes, P, T>(run.panels + panel * run.panel_bytes, run.panel_bytes, x, run.ldx, run.cols, to,
                              lanes_of(run, panel + P - 1));
  }
  for (; panel < n_panels; ++panel) {
    floats_tile<kCodes, 1, T>(run.panels + panel * run.panel_bytes, run.panel_bytes, x, run.ldx, run.cols,
                              tile_out(run, panel, row), lanes_of(run, panel));
  }
}

template <Codes kCodes>
void floats_run(const LinearRun& run) {
  size_t row = run.first_row;
  while (row < run.last_row) {
    const size_t left = run.last_row - row;
    if (left >= 12) {
      floats_rows<kCodes, 2, 12>(run, row);
      row += 12;
    } else if (left >= 6) {
      floats_rows<kCodes, 4, 6>(run, row);
      row += 6;
    } else if (left >= 3) {
      floats_rows<kCodes, 6, 3>(run, row);
      row += 3;
    } else {
      floats_rows<kCodes, 12, 1>(run, row);
      row += 1;
    }
  }
}

constexpr size_t kPanelsAtOnce =
    192 * 1024;  // bytes of weights that stay in the second-level cache while all rows pass

}  // namespace

void linear_run(const LinearRun& run) {
  if (run.format.codes == Codes::f32) return floats_run<Codes::f32>(run);
  if (run.format.codes == Codes::f16) return floats_run<Codes::f16>(run);
  if (run.format.codes == Codes::bf16) return floats_run<Codes::bf16>(run);
  const CellsTile* tiles = cells_tiles(run.format);
  const uint32_t n_groups = run.cols / kCellValues;
  const uint32_t n_panels = (run.n_columns + kPanelRows - 1) / kPanelRows;
  const uint32_t at_once = static_cast<uint32_t>(1 + kPanelsAtOnce / run.panel_bytes);
  for (uint32_t begin = 0; begin < n_panels; begin += at_once) {
    const uint32_t end = begin + at_once < n_panels ? begin + at_once : n_panels;
    for (uint32_t row = run.first_row; row < run.last_row;) {
      const uint32_t in_tile = row % kTileRows;
      const uint32_t left = run.last_row - row;
      const uint32_t n = left < kTileRows - in_tile ? left : kTileRows - in_tile;
      const ActCell* cells = run.cells + static_cast<size_t>(row / kTileRows) * n_groups * kTileRows + in_tile;
      for (uint32_t panel = begin; panel < end; ++panel) {
        tiles[n - 1](run.panels + panel * run.panel_bytes, cells, n_groups, tile_out(run, panel, row));
      }
      row += n;
    }
  }
}

}  // namespace heddle::cpu::HEDDLE_ISA
