// The kernels of attend_kernels.h, compiled once for every instruction set (HEDDLE_ISA names it).
#include "cpu/attend_kernels.h"
#include "cpu/lanes.h"

namespace heddle::cpu::HEDDLE_ISA {
namespace {

// How many accumulators of 16 lanes the register file holds beside the operands, and rows in a tile.
#if defined(__AVX512F__)
constexpr uint32_t kAccumulators = 24, kMaxRows = 8;
#elif defined(__AVX2__)
constexpr uint32_t kAccumulators = 6, kMaxRows = 6;
#else
constexpr uint32_t kAccumulators = 4, kMaxRows = 4;
#endif
static_assert(kMaxRows * kAttendChunk <= kAttendScores);

// The widest of 4, 2, 1 register columns for a tile of `rows`.
constexpr uint32_t columns_for(uint32_t rows) {
  return rows * 4 <= kAccumulators ? 4 : rows * 2 <= kAccumulators ? 2 : 1;
}

constexpr uint32_t at_most(uint32_t a, uint32_t b) { return a < b ? a : b; }
constexpr uint32_t at_least(uint32_t a, uint32_t b) { return a > b ? a : b; }

// Visible positions of a row, [first, last).
struct Range {
  uint32_t first, last;
};

HEDDLE_INLINE Range visible(const AttendUnit& u, uint32_t row) {
  const uint32_t last = u.first_position + row / u.group + 1;
  return {u.window != 0 && last > u.window ? last - u.window : 0, last};
}

// A chunk's part of a range, relative to the chunk; empty if first >= last.
HEDDLE_INLINE Range within_chunk(Range r, uint32_t chunk) {
  const uint32_t begin = chunk * kAttendChunk;
  const uint32_t last = at_most(at_least(r.last, begin) - begin, kAttendChunk);
  return {at_most(at_least(r.first, begin) - begin, kAttendChunk), last};
}

// E: uint16_t for halves, float.
HEDDLE_INLINE Lanes load_element(const uint16_t* p) { return load_half(p); }
HEDDLE_INLINE Lanes load_element(const float* p) { return load(p); }

template <class E>
HEDDLE_INLINE const E* k_tile(const AttendUnit& u, uint32_t position) {
  const size_t block = u.blocks[position / u.block_size];
  const size_t inside = position % u.block_size;
  return reinterpret_cast<const E*>(u.k + block * u.block_stride) + inside * u.head_dim;
}

template <class E>
HEDDLE_INLINE const E* v_row(const AttendUnit& u, uint32_t position) {
  const size_t block = u.blocks[position / u.block_size];
  const size_t inside = position % u.block_size;
  return reinterpret_cast<const E*>(u.v + block * u.block_stride) + inside * u.padded_dim;
}

// A tile: `rows` adjacent rows against one chunk.
struct Tile {
  const float* q;       // [rows][head_dim], scaled
  Range range[8];       // visible, relative to the chunk
  uint32_t tile_first;  // position tiles [tile_first, tile_last) hold what any row sees
  uint32_t tile_last;
  uint32_t chunk;
  float* scores;  // [rows][256]
  // Of the rows, after softmax(): this chunk's (m, l) and the factors of the merge.
  float m[16], l[16], a[16], b[16];
};

// scores[r][16 (t + p) + lane] = q_r . k
template <class E, uint32_t R, uint32_t P>
HEDDLE_INLINE void score(const AttendUnit& u, const Tile& tile, uint32_t t) {
  const E* k[P];
  for (uint32_t p = 0; p < P; ++p) k[p] = k_tile<E>(u, tile.chunk * kAttendChunk + (t + p) * kPositionTile);
  const float* q = tile.q;
  const uint32_t dim = u.head_dim;
  Lanes acc[R][P];
#pragma GCC unroll 8
  for (uint32_t r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (uint32_t p = 0; p < P; ++p) acc[r][p] = splat(0.0f);
  for (uint32_t d = 0; d < dim; ++d) {
    Lanes x[P];
#pragma GCC unroll 4
    for (uint32_t p = 0; p < P; ++p) x[p] = load_element(k[p] + size_t{d} * kPositionTile);
#pragma GCC unroll 8
    for (uint32_t r = 0; r < R; ++r) {
      const Lanes y = splat(q[r * dim + d]);
#pragma GCC unroll 4
      for (uint32_t p = 0; p < P; ++p) acc[r][p] = fma(y, x[p], acc[r][p]);
    }
  }
#pragma GCC unroll 8
  for (uint32_t r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (uint32_t p = 0; p < P; ++p) store(tile.scores + r * kAttendChunk + (t + p) * kPositionTile, acc[r][p]);
}

template <class E, uint32_t R>
void score_all(const AttendUnit& u, const Tile& tile) {
  constexpr uint32_t P = columns_for(R);
  uint32_t t = tile.tile_first;
  for (; t + P <= tile.tile_last; t += P) score<E, R, P>(u, tile, t);
  if constexpr (P > 2)
    if (t + 2 <= tile.tile_last) {
      score<E, R, 2>(u, tile, t);
      t += 2;
    }
  if constexpr (P > 1)
    for (; t < tile.tile_last; ++t) score<E, R, 1>(u, tile, t);
}

// scores -> exp(score - m); m and l of each row.
HEDDLE_INLINE void softmax(Tile& tile, uint32_t rows) {
  for (uint32_t r = 0; r < rows; ++r) {
    float* s = tile.scores + r * kAttendChunk;
    const Range seen = tile.range[r];
    Lanes top = splat(kMinusInfinity);
    for (uint32_t t = tile.tile_first; t < tile.tile_last; ++t) {
      const uint32_t begin = t * kPositionTile;
      Lanes x = load(s + begin);
      if (begin < seen.first || begin + kPositionTile > seen.last) {
        x = keep_range(x, at_most(at_least(seen.first, begin) - begin, kPositionTile),
                       at_most(at_least(seen.last, begin) - begin, kPositionTile), kMinusInfinity);
        store(s + begin, x);
      }
      top = max(top, x);
    }
    const float m = fold_max(top);
    const Lanes shift = splat(m);
    Lanes sum = splat(0.0f);
    for (uint32_t t = tile.tile_first; t < tile.tile_last; ++t) {
      const Lanes p = exp(sub(load(s + t * kPositionTile), shift));
      store(s + t * kPositionTile, p);
      sum = add(sum, p);
    }
    tile.m[r] = m;
    tile.l[r] = fold_sum(sum);
  }
}

// (M, L) of `rows` rows take in the tile's (m, l); a and b are the factors for the values.
HEDDLE_INLINE void merge_sums(Tile& tile, uint32_t rows, float* big_m, float* big_l) {
  float before_m[16] = {}, before_l[16] = {};
  for (uint32_t r = 0; r < rows; ++r) {
    before_m[r] = big_m[r];
    before_l[r] = big_l[r];
  }
  const Lanes m = load(tile.m), old = load(before_m);
  const Lanes top = max(old, m);
  const Lanes a = exp(sub(old, top)), b = exp(sub(m, top));
  store(tile.a, a);
  store(tile.b, b);
  store(before_l, fma(load(tile.l), b, mul(load(before_l), a)));
  store(before_m, top);
  for (uint32_t r = 0; r < rows; ++r) {
    big_m[r] = before_m[r];
    big_l[r] = before_l[r];
  }
}

HEDDLE_INLINE Lanes merge_values(Lanes big, Lanes acc, float a, float b) {
  return fma(acc, splat(b), mul(big, splat(a)));
}

// For dims [16 t, 16 (t + T)): acc over the chunk, then A = fma(acc, b, A * a), or acc as it is into a partial result.
template <class E, uint32_t R, uint32_t T>
HEDDLE_INLINE void weigh(const AttendUnit& u, const Tile& tile, uint32_t t, float* values, size_t ldv, bool merge) {
  Lanes acc[R][T];
#pragma GCC unroll 8
  for (uint32_t r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (uint32_t i = 0; i < T; ++i) acc[r][i] = splat(0.0f);
  // Rows are ascending in position: all of them see [all_first, all_last).
  const uint32_t any_first = tile.range[0].first, any_last = tile.range[R - 1].last;
  const uint32_t all_last = tile.range[0].last;
  const uint32_t all_first = at_most(tile.range[R - 1].first, all_last);
  const float* p = tile.scores;
  const auto some = [&](uint32_t first, uint32_t last) {
    for (uint32_t j = first; j < last; ++j) {
      const E* v = v_row<E>(u, tile.chunk * kAttendChunk + j) + t * 16;
#pragma GCC unroll 8
      for (uint32_t r = 0; r < R; ++r) {
        if (j < tile.range[r].first || j >= tile.range[r].last) continue;
        const Lanes w = splat(p[r * kAttendChunk + j]);
#pragma GCC unroll 4
        for (uint32_t i = 0; i < T; ++i) acc[r][i] = fma(w, load_element(v + i * 16), acc[r][i]);
      }
    }
  };
  some(any_first, all_first);
  for (uint32_t j = all_first; j < all_last;) {
    const uint32_t end = at_most((j / kPositionTile + 1) * kPositionTile, all_last);
    const E* v = v_row<E>(u, tile.chunk * kAttendChunk + j) + t * 16;
    for (; j < end; ++j, v += u.padded_dim) {
      Lanes x[T];
#pragma GCC unroll 4
      for (uint32_t i = 0; i < T; ++i) x[i] = load_element(v + i * 16);
#pragma GCC unroll 8
      for (uint32_t r = 0; r < R; ++r) {
        const Lanes w = splat(p[r * kAttendChunk + j]);
#pragma GCC unroll 4
        for (uint32_t i = 0; i < T; ++i) acc[r][i] = fma(w, x[i], acc[r][i]);
      }
    }
  }
  some(all_last, any_last);
#pragma GCC unroll 8
  for (uint32_t r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (uint32_t i = 0; i < T; ++i) {
      float* at = values + r * ldv + (t + i) * 16;
      store(at, merge ? merge_values(load(at), acc[r][i], tile.a[r], tile.b[r]) : acc[r][i]);
    }
}

template <class E, uint32_t R>
void weigh_all(const AttendUnit& u, const Tile& tile, float* values, size_t ldv, bool merge) {
  constexpr uint32_t T = columns_for(R);
  const uint32_t n = u.padded_dim / 16;
  uint32_t t = 0;
  for (; t + T <= n; t += T) weigh<E, R, T>(u, tile, t, values, ldv, merge);
  if constexpr (T > 2)
    if (t + 2 <= n) {
      weigh<E, R, 2>(u, tile, t, values, ldv, merge);
      t += 2;
    }
  if constexpr (T > 1)
    for (; t < n; ++t) weigh<E, R, 1>(u, tile, t, values, ldv, merge);
}

struct RowKernels {
  void (*score)(const AttendUnit&, const Tile&);
  void (*weigh)(const AttendUnit&, const Tile&, float*, size_t, bool);
};
template <class E>
constexpr RowKernels kRowKernels[] = {
    {score_all<E, 1>, weigh_all<E, 1>}, {score_all<E, 2>, weigh_all<E, 2>},
    {score_all<E, 3>, weigh_all<E, 3>}, {score_all<E, 4>, weigh_all<E, 4>},
#if defined(__AVX2__)
    {score_all<E, 5>, weigh_all<E, 5>}, {score_all<E, 6>, weigh_all<E, 6>},
#endif
#if defined(__AVX512F__)
    {score_all<E, 7>, weigh_all<E, 7>}, {score_all<E, 8>, weigh_all<E, 8>},
#endif
};
static_assert(sizeof(kRowKernels<float>) / sizeof(RowKernels) == kMaxRows);

HEDDLE_INLINE void clear(float* x, size_t n, float value) {
  for (size_t i = 0; i < n; ++i) x[i] = value;
}

void write_out(const AttendUnit& u, uint32_t row, const float* values, float sum) {
  float* out = u.out + row / u.group * u.ldo + row % u.group * u.head_dim;
  const Lanes l = splat(sum);
  uint32_t d = 0;
  for (; d + 16 <= u.head_dim; d += 16) store(out + d, div(load(values + d), l));
  if (d < u.head_dim) store_part(out + d, div(load(values + d), l), u.head_dim - d);
}

template <class E>
void attend(const AttendUnit& u) {
  const uint32_t rows = u.n_tokens * u.group;
  const size_t dim = u.padded_dim;
  float* scores = u.scratch;
  float* q = scores + kAttendScores;
  float* values = q + rows * dim;
  float* big_m = values + rows * dim;
  float* big_l = big_m + rows;
  const Lanes scale = splat(u.scale);
  for (uint32_t i = 0; i < rows; ++i) {
    const float* from = u.q + i / u.group * u.ldq + i % u.group * u.head_dim;
    float* to = q + size_t{i} * u.head_dim;
    uint32_t d = 0;
    for (; d + 16 <= u.head_dim; d += 16) store(to + d, mul(load(from + d), scale));
    if (d < u.head_dim) store_part(to + d, mul(load_part(from + d, u.head_dim - d, 0.0f), scale), u.head_dim - d);
  }
  if (u.partial == nullptr) {
    clear(values, rows * dim, 0.0f);
    clear(big_m, rows, kMinusInfinity);
    clear(big_l, rows, 0.0f);
  }
  Tile tile;
  tile.scores = scores;
  clear(tile.m, 16, 0.0f);
  clear(tile.l, 16, 0.0f);
  for (uint32_t chunk = u.first_chunk; chunk < u.last_chunk; ++chunk) {
    // Rows ascend in position, so those that see the chunk are adjacent.
    uint32_t row = 0, end = rows;
    while (row < end) {
      const Range seen = within_chunk(visible(u, row), chunk);
      if (seen.first < seen.last) break;
      ++row;
    }
    while (end > row) {
      const Range seen = within_chunk(visible(u, end - 1), chunk);
      if (seen.first < seen.last) break;
      --end;
    }
    tile.chunk = chunk;
    for (uint32_t left = end - row; left > 0; left = end - row) {
      const uint32_t n_tiles = (left + kMaxRows - 1) / kMaxRows;
      const uint32_t n = (left + n_tiles - 1) / n_tiles;  // 9 rows are 5 and 4, not 8 and 1
      for (uint32_t r = 0; r < n; ++r) tile.range[r] = within_chunk(visible(u, row + r), chunk);
      tile.tile_first = tile.range[0].first / kPositionTile;
      tile.tile_last = (tile.range[n - 1].last + kPositionTile - 1) / kPositionTile;
      tile.q = q + size_t{row} * u.head_dim;
      const RowKernels& kernels = kRowKernels<E>[n - 1];
      kernels.score(u, tile);
      softmax(tile, n);
      if (u.partial == nullptr) {
        merge_sums(tile, n, big_m + row, big_l + row);
        kernels.weigh(u, tile, values + row * dim, dim, true);
      } else {
        float* at = u.partial + (size_t{chunk - u.first_chunk} * rows + row) * (dim + 16);
        for (uint32_t r = 0; r < n; ++r) {
          at[r * (dim + 16) + dim] = tile.m[r];
          at[r * (dim + 16) + dim + 1] = tile.l[r];
        }
        kernels.weigh(u, tile, at, dim + 16, false);
      }
      row += n;
    }
  }
  if (u.partial == nullptr)
    for (uint32_t i = 0; i < rows; ++i) write_out(u, i, values + i * dim, big_l[i]);
}

void merge(const AttendUnit& u) {
  const uint32_t rows = u.n_tokens * u.group;
  const size_t dim = u.padded_dim;
  float* values = u.scratch;
  Tile tile;
  clear(tile.m, 16, 0.0f);
  clear(tile.l, 16, 0.0f);
  for (uint32_t row = 0; row < rows; ++row) {
    float big_m = kMinusInfinity, big_l = 0.0f;
    clear(values, dim, 0.0f);
    for (uint32_t chunk = u.first_chunk; chunk < u.last_chunk; ++chunk) {
      const Range seen = within_chunk(visible(u, row), chunk);
      if (seen.first >= seen.last) continue;
      const float* part = u.partial + (size_t{chunk - u.first_chunk} * rows + row) * (dim + 16);
      tile.m[0] = part[dim];
      tile.l[0] = part[dim + 1];
      merge_sums(tile, 1, &big_m, &big_l);
      for (size_t d = 0; d < dim; d += 16)
        store(values + d, merge_values(load(values + d), load(part + d), tile.a[0], tile.b[0]));
    }
    write_out(u, row, values, big_l);
  }
}

}  // namespace

extern const AttendKernels attend_kernels;
const AttendKernels attend_kernels{attend<uint16_t>, attend<float>, merge};

}  // namespace heddle::cpu::HEDDLE_ISA
