#pragma once
// Linear layer for AVX2 with FMA and F16C. Included by linear_isa.cpp alone.
//
// Quantised: half a panel (8 rows in 8 lanes) against up to 16 tokens whose accumulators lie in the first-level cache.
// Per group of 32 columns the weights are unpacked into 8 registers once; every token then takes 8 vpmaddubsw with its
// codes broadcast from memory. vpmaddubsw saturates at 32767, so its results are added as 16-bit words only as far as
// the largest code allows (|a| <= 128): 8 results of 4-bit codes (30720), 4 of 5-bit codes (31744), 2 of 6-bit codes
// (32256). 8-bit codes are taken apart into nibbles.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "cpu/linear_kernels.h"

namespace heddle::cpu::HEDDLE_ISA {
namespace {

constexpr uint32_t kHalf = kPanelRows / 2;

inline int32_t dword(const void* at) {
  int32_t value;
  __builtin_memcpy(&value, at, sizeof value);
  return value;
}
inline __m256i bytes_at(const uint8_t* at) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)); }
inline __m256i broadcast(const void* at) { return _mm256_set1_epi32(dword(at)); }
inline __m256 halves(const uint8_t* at) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
}
inline __m256i words_i8(const uint8_t* at) {
  return _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(at)));
}
inline __m256i words_u8(const uint8_t* at) {
  return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(at)));
}

// Bits of `plane` for columns 4 j ... 4 j + 3, at bit kBit of every byte.
template <int kBit>
inline __m256i plane_bits(__m256i plane, int j) {
  const __m256i moved = j < kBit ? _mm256_slli_epi16(plane, kBit - j) : _mm256_srli_epi16(plane, j - kBit);
  return _mm256_and_si256(moved, _mm256_set1_epi8(1 << kBit));
}

// 32 columns of 8 rows; p points at the half's first row. w[j] holds columns 4 j ... 4 j + 3, four bytes a lane.
template <Codes kCodes>
inline void unpack(const uint8_t* p, __m256i (&w)[8]) {
  const __m256i low = _mm256_set1_epi8(15);
  for (int j = 0; j < 4; ++j) {
    const __m256i x = bytes_at(p + 64 * j);
    w[j] = _mm256_and_si256(x, low);
    w[j + 4] = _mm256_and_si256(_mm256_srli_epi16(x, 4), low);
  }
  if constexpr (kCodes == Codes::u5 || kCodes == Codes::u6) {
    const __m256i bits = bytes_at(p + 256);
    for (int j = 0; j < 8; ++j) w[j] = _mm256_or_si256(w[j], plane_bits<4>(bits, j));
  }
  if constexpr (kCodes == Codes::u6) {
    const __m256i bits = bytes_at(p + 320);
    for (int j = 0; j < 8; ++j) w[j] = _mm256_or_si256(w[j], plane_bits<5>(bits, j));
  }
}

// Sum of the four bytes of each lane.
inline __m256i add_bytes(__m256i bytes) {
  const __m256i pairs = _mm256_maddubs_epi16(bytes, _mm256_set1_epi8(1));
  return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

// Per lane the sum of the codes in w[first ... last): 4- and 5-bit codes fit a byte eight times, 6-bit codes four
// times.
template <Codes kCodes>
inline __m256i code_sum(const __m256i (&w)[8], int first, int last) {
  constexpr int kAtOnce = kCodes == Codes::u6 ? 4 : 8;
  __m256i sum = _mm256_setzero_si256();
  for (int j = first; j < last; j += kAtOnce) {
    __m256i bytes = w[j];
    for (int i = j + 1; i < j + kAtOnce && i < last; ++i) bytes = _mm256_add_epi8(bytes, w[i]);
    sum = _mm256_add_epi32(sum, add_bytes(bytes));
  }
  return sum;
}

// sum + the dot of w[first ... last) with a token's codes.
template <Codes kCodes>
inline __m256i dot(__m256i sum, const __m256i (&w)[8], const int8_t* codes, int first, int last) {
  constexpr int kAtOnce = kCodes == Codes::u4 ? 8 : kCodes == Codes::u5 ? 4 : 2;
  for (int j = first; j < last; j += kAtOnce) {
    __m256i words = _mm256_maddubs_epi16(w[j], broadcast(codes + 4 * j));
    for (int i = j + 1; i < j + kAtOnce && i < last; ++i) {
      words = _mm256_add_epi16(words, _mm256_maddubs_epi16(w[i], broadcast(codes + 4 * i)));
    }
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(words, _mm256_set1_epi16(1)));
  }
  return sum;
}

inline void fuse(float* acc, __m256 d, __m256i dot, const ActCell& cell) {
  const __m256 scale = _mm256_mul_ps(d, _mm256_set1_ps(cell.scale));
  _mm256_store_ps(acc, _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(dot), _mm256_load_ps(acc)));
}

template <Codes kC, bool kK, bool kMin, int kGroup, int kZero>
struct Form {
  static constexpr Codes kCodes = kC;
  static constexpr bool kKFormat = kK, kHasMin = kMin;
  static constexpr int kScaleGroup = kGroup, kZeroCode = kZero;
  static constexpr int kCodeBytes = kC == Codes::u8 ? 512 : kC == Codes::u4 ? 256 : kC == Codes::u5 ? 320 : 384;
  static constexpr int kScaleBytes = (kK ? 16 * (32 / kGroup) : 32) * (kMin ? 2 : 1);
};

// One group of one half panel, scale groups of 32 columns, codes up to 5 bits. h: 0 or 8, the half's first row.
template <class F>
inline void group_of_32(const uint8_t* p, uint32_t h, const ActCell* cell, uint32_t n_tokens, __m256 d_super,
                        __m256 min_super, float* acc) {
  __m256i w[8];
  unpack<F::kCodes>(p + 4 * h, w);
  const uint8_t* scales = p + F::kCodeBytes;
  // Per lane (zero, sum of codes): what the words neg_sum and offset meet.
  const __m256i correction =
      _mm256_or_si256(_mm256_slli_epi32(code_sum<F::kCodes>(w, 0, 8), 16), _mm256_set1_epi32(F::kZeroCode));
  const __m256 d =
      F::kKFormat ? _mm256_mul_ps(d_super, _mm256_cvtepi32_ps(words_i8(scales + h))) : halves(scales + 2 * h);
  __m256 m = _mm256_setzero_ps();
  if constexpr (F::kHasMin) {
    m = F::kKFormat ? _mm256_mul_ps(min_super, _mm256_cvtepi32_ps(words_u8(scales + 16 + h)))
                    : halves(scales + 32 + 2 * h);
  }
  for (uint32_t t = 0; t < n_tokens; ++t, ++cell, acc += kHalf) {
    const __m256i start = _mm256_madd_epi16(correction, broadcast(&cell->neg_sum));
    const __m256i sum = dot<F::kCodes>(start, w, cell->codes, 0, 8);
    const __m256 scale = _mm256_mul_ps(d, _mm256_set1_ps(cell->scale));
    __m256 a = _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(sum), _mm256_load_ps(acc));
    if constexpr (F::kHasMin) {
      const __m256 total = _mm256_set1_ps(cell->sum);
      a = F::kKFormat ? _mm256_fnmadd_ps(m, total, a) : _mm256_fmadd_ps(m, total, a);
    }
    _mm256_store_ps(acc, a);
  }
}

// The same for two scale groups of 16 columns (K formats).
template <class F>
inline void groups_of_16(const uint8_t* p, uint32_t h, const ActCell* cell, uint32_t n_tokens, __m256 d_super,
                         __m256 min_super, float* acc) {
  __m256i w[8];
  unpack<F::kCodes>(p + 4 * h, w);
  const uint8_t* scales = p + F::kCodeBytes;
  const __m256i zero = _mm256_set1_epi32(F::kZeroCode << 16);
  const __m256i first = _mm256_or_si256(code_sum<F::kCodes>(w, 0, 4), zero);  // meets (offset, neg_half_sum[0])
  const __m256i second = code_sum<F::kCodes>(w, 4, 8);                        // only the offset of that pair
  const __m256 d0 = _mm256_mul_ps(d_super, _mm256_cvtepi32_ps(words_i8(scales + h)));
  const __m256 d1 = _mm256_mul_ps(d_super, _mm256_cvtepi32_ps(words_i8(scales + 16 + h)));
  __m256i mins = _mm256_setzero_si256();
  if constexpr (F::kHasMin) {
    mins = _mm256_or_si256(words_u8(scales + 32 + h), _mm256_slli_epi32(words_u8(scales + 48 + h), 16));
  }
  for (uint32_t t = 0; t < n_tokens; ++t, ++cell, acc += kHalf) {
    const __m256i offset = broadcast(&cell->offset);
    fuse(acc, d0, dot<F::kCodes>(_mm256_madd_epi16(first, offset), w, cell->codes, 0, 4), *cell);
    __m256i start = _mm256_madd_epi16(second, offset);
    if constexpr (F::kZeroCode != 0) {
      start = _mm256_add_epi32(start, _mm256_madd_epi16(zero, broadcast(cell->neg_half_sum)));
    }
    fuse(acc, d1, dot<F::kCodes>(start, w, cell->codes, 4, 8), *cell);
    if constexpr (F::kHasMin) {  // the words are -(sum of v): this is the negated product of linear.h
      fuse(acc, min_super, _mm256_madd_epi16(mins, broadcast(cell->neg_half_sum)), *cell);
    }
  }
}

// Q8_0: w = 16 high + low, each a nibble; 16 columns at a time, since both take 8 registers.
inline void group_of_bytes(const uint8_t* p, uint32_t h, const ActCell* cell, uint32_t n_tokens, int zero_code,
                           float* acc) {
  alignas(32) int32_t dots[kTileRows][kHalf];
  const __m256i mask = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1), sixteens = _mm256_set1_epi16(16);
  __m256i code_sum = _mm256_setzero_si256();
  for (int part = 0; part < 2; ++part) {
    __m256i low[4], high[4];
    for (int j = 0; j < 4; ++j) {
      const __m256i x = bytes_at(p + 4 * h + 64 * (4 * part + j));
      low[j] = _mm256_and_si256(x, mask);
      high[j] = _mm256_and_si256(_mm256_srli_epi16(x, 4), mask);
      code_sum = _mm256_add_epi32(code_sum, add_bytes(x));
    }
    for (uint32_t t = 0; t < n_tokens; ++t) {
      const int8_t* codes = cell[t].codes + 16 * part;
      __m256i a = broadcast(codes);
      __m256i low_words = _mm256_maddubs_epi16(low[0], a), high_words = _mm256_maddubs_epi16(high[0], a);
      for (int j = 1; j < 4; ++j) {
        a = broadcast(codes + 4 * j);
        low_words = _mm256_add_epi16(low_words, _mm256_maddubs_epi16(low[j], a));
        high_words = _mm256_add_epi16(high_words, _mm256_maddubs_epi16(high[j], a));
      }
      __m256i sum = _mm256_add_epi32(_mm256_madd_epi16(low_words, ones), _mm256_madd_epi16(high_words, sixteens));
      auto* at = reinterpret_cast<__m256i*>(dots[t]);
      if (part == 1) sum = _mm256_add_epi32(sum, _mm256_load_si256(at));
      _mm256_store_si256(at, sum);
    }
  }
  const __m256i correction = _mm256_or_si256(_mm256_slli_epi32(code_sum, 16), _mm256_set1_epi32(zero_code));
  const __m256 d = halves(p + 512 + 2 * h);
  for (uint32_t t = 0; t < n_tokens; ++t) {
    const __m256i start = _mm256_madd_epi16(correction, broadcast(&cell[t].neg_sum));
    fuse(acc + t * kHalf, d, _mm256_add_epi32(start, _mm256_load_si256(reinterpret_cast<const __m256i*>(dots[t]))),
         cell[t]);
  }
}

// A half panel against n_tokens <= 16 tokens of one tile. acc: [n_tokens][8].
template <class F>
void cells_tile(const uint8_t* p, uint32_t h, const ActCell* cell, uint32_t n_tokens, uint32_t n_groups, float* acc) {
  const __m256 none = _mm256_setzero_ps();
  for (uint32_t t = 0; t < n_tokens; ++t) _mm256_store_ps(acc + t * kHalf, none);
  __m256 d_super = none, min_super = none;
  for (uint32_t g = 0; g < n_groups; ++g, cell += kTileRows) {
    if constexpr (F::kKFormat) {
      if (g % 8 == 0) {
        d_super = halves(p + 2 * h);
        if constexpr (F::kHasMin) min_super = halves(p + 32 + 2 * h);
        p += F::kHasMin ? 64 : 32;
      }
    }
    if constexpr (F::kCodes == Codes::u8) {
      group_of_bytes(p, h, cell, n_tokens, F::kZeroCode, acc);
    } else if constexpr (F::kScaleGroup == 32) {
      group_of_32<F>(p, h, cell, n_tokens, d_super, min_super, acc);
    } else {
      groups_of_16<F>(p, h, cell, n_tokens, d_super, min_super, acc);
    }
    p += F::kCodeBytes + F::kScaleBytes;
  }
}

using CellsTile = void (*)(const uint8_t*, uint32_t, const ActCell*, uint32_t, uint32_t, float*);

// Null for float formats.
CellsTile cells_tile_of(PackFormat f) {
  switch (f.codes) {
    case Codes::u4:
      if (!f.k_format) {
        return f.has_min ? cells_tile<Form<Codes::u4, false, true, 32, 0>>
                         : cells_tile<Form<Codes::u4, false, false, 32, 8>>;
      }
      if (f.group == 32) return cells_tile<Form<Codes::u4, true, true, 32, 0>>;
      return f.has_min ? cells_tile<Form<Codes::u4, true, true, 16, 0>>
                       : cells_tile<Form<Codes::u4, true, false, 16, 4>>;
    case Codes::u5:
      if (f.k_format) return cells_tile<Form<Codes::u5, true, true, 32, 0>>;
      return f.has_min ? cells_tile<Form<Codes::u5, false, true, 32, 0>>
                       : cells_tile<Form<Codes::u5, false, false, 32, 16>>;
    case Codes::u6:
      return cells_tile<Form<Codes::u6, true, false, 16, 32>>;
    case Codes::u8:
      return cells_tile<Form<Codes::u8, false, false, 32, 128>>;
    case Codes::f32:
    case Codes::f16:
    case Codes::bf16:
      return nullptr;
  }
  return nullptr;
}

inline void store(const LinearRun& run, uint32_t column, size_t row, __m256 v) {
  const float* bias = run.bias == nullptr ? nullptr : run.bias + column;
  const float* residual = run.residual == nullptr ? nullptr : run.residual + row * run.ldr + column;
  float* out = run.out + row * run.ldo + column;
  const uint32_t width = run.n_columns - column;
  if (width >= kHalf) {
    if (bias != nullptr) v = _mm256_add_ps(v, _mm256_loadu_ps(bias));
    if (residual != nullptr) v = _mm256_add_ps(_mm256_loadu_ps(residual), v);
    _mm256_storeu_ps(out, v);
    return;
  }
  const __m256i lanes =
      _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int32_t>(width)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  if (bias != nullptr) v = _mm256_add_ps(v, _mm256_maskload_ps(bias, lanes));
  if (residual != nullptr) v = _mm256_add_ps(_mm256_maskload_ps(residual, lanes), v);
  _mm256_maskstore_ps(out, lanes, v);
}

// Eight rows of weights at column k; p points at the half's first row.
template <Codes kCodes>
inline __m256 float_weights(const uint8_t* p, size_t k) {
  if constexpr (kCodes == Codes::f32) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(p + 64 * k));
  } else if constexpr (kCodes == Codes::f16) {
    return halves(p + 32 * k);
  } else {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 32 * k));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
}

// H half panels (adjacent, from `column` on) times T tokens.
template <Codes kCodes, int H, int T>
inline void floats_tile(const LinearRun& run, uint32_t column, size_t row) {
  constexpr uint32_t kElement = kCodes == Codes::f32 ? 4 : 2;
  const float* x = run.x + row * run.ldx;
  const uint8_t* p[H];
  __m256 acc[H][T];
  for (uint32_t h = 0; h < H; ++h) {
    const uint32_t at = column + kHalf * h;
    p[h] = run.panels + at / kPanelRows * run.panel_bytes + at % kPanelRows * kElement;
    for (int t = 0; t < T; ++t) acc[h][t] = _mm256_setzero_ps();
  }
  for (size_t k = 0; k < run.cols; ++k) {
    __m256 w[H];
    for (int h = 0; h < H; ++h) w[h] = float_weights<kCodes>(p[h], k);
    for (int t = 0; t < T; ++t) {
      const __m256 a = _mm256_broadcast_ss(x + static_cast<size_t>(t) * run.ldx + k);
      for (int h = 0; h < H; ++h) acc[h][t] = _mm256_fmadd_ps(a, w[h], acc[h][t]);
    }
  }
  for (uint32_t h = 0; h < H; ++h) {
    if (column + kHalf * h >= run.n_columns) break;  // the upper half of a short last panel
    for (int t = 0; t < T; ++t) store(run, column + kHalf * h, row + static_cast<size_t>(t), acc[h][t]);
  }
}

template <Codes kCodes, int H, int T>
void floats_rows(const LinearRun& run, size_t row) {
  const uint32_t padded = (run.n_columns + kPanelRows - 1) / kPanelRows * kPanelRows;
  uint32_t column = 0;
  for (; column + kHalf * H <= padded; column += kHalf * H) floats_tile<kCodes, H, T>(run, column, row);
  for (; column < run.n_columns; column += kPanelRows) floats_tile<kCodes, 2, T>(run, column, row);
}

template <Codes kCodes>
void floats_run(const LinearRun& run) {
  size_t row = run.first_row;
  while (row < run.last_row) {
    const size_t left = run.last_row - row;
    if (left >= 6) {
      floats_rows<kCodes, 2, 6>(run, row);
      row += 6;
    } else if (left >= 3) {
      floats_rows<kCodes, 4, 3>(run, row);
      row += 3;
    } else {
      floats_rows<kCodes, 8, 1>(run, row);
      row += 1;
    }
  }
}

constexpr size_t kPanelsAtOnce =
    128 * 1024;  // bytes of weights that stay in the second-level cache while all rows pass

}  // namespace

void linear_run(const LinearRun& run) {
  if (run.format.codes == Codes::f32) return floats_run<Codes::f32>(run);
  if (run.format.codes == Codes::f16) return floats_run<Codes::f16>(run);
  if (run.format.codes == Codes::bf16) return floats_run<Codes::bf16>(run);
  const CellsTile tile = cells_tile_of(run.format);
  const uint32_t n_groups = run.cols / kCellValues;
  const uint32_t n_panels = (run.n_columns + kPanelRows - 1) / kPanelRows;
  const uint32_t at_once = static_cast<uint32_t>(1 + kPanelsAtOnce / run.panel_bytes);
  alignas(32) float acc[kTileRows * kHalf];
  for (uint32_t begin = 0; begin < n_panels; begin += at_once) {
    const uint32_t end = begin + at_once < n_panels ? begin + at_once : n_panels;
    for (uint32_t row = run.first_row; row < run.last_row;) {
      const uint32_t in_tile = row % kTileRows;
      const uint32_t left = run.last_row - row;
      const uint32_t n = left < kTileRows - in_tile ? left : kTileRows - in_tile;
      const ActCell* cells = run.cells + static_cast<size_t>(row / kTileRows) * n_groups * kTileRows + in_tile;
      for (uint32_t column = begin * kPanelRows; column < end * kPanelRows && column < run.n_columns; column += kHalf) {
        tile(run.panels + column / kPanelRows * run.panel_bytes, column % kPanelRows, cells, n, n_groups, acc);
        for (uint32_t t = 0; t < n; ++t) store(run, column, row + t, _mm256_load_ps(acc + t * kHalf));
      }
      row += n;
    }
  }
}

}  // namespace heddle::cpu::HEDDLE_ISA
