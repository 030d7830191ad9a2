#pragma once
// Paged attention, per instruction set; every set gives the same bits. One arithmetic for decode and prefill, a
// function of the row alone (batch-invariance). A row at position p sees [max(0, p - window + 1), p], or [0, p] without
// a window. With q' = q * scale and absolute chunks of 256 positions, those that hold a visible one, ascending:
//     s_j = sum over d of fma(q'[d], k_j[d])    d ascending; not visible: -inf, whatever k holds
//     m = max s_j;   p_j = exp(s_j - m);   l = sum p_j    over 16 lanes and one tree
//     acc[d] = sum over visible j of fma(p_j, v_j[d])     j ascending; v of other positions is not read
//     M' = max(M, m), a = exp(M - M'), b = exp(m - M'):   L = fma(l, b, L * a),   A = fma(acc, b, A * a)
// from (M, L, A) = (-inf, 0, 0), and out = A / L. K and V are halves or floats, in blocks of a multiple of 16
// positions: K [tile of 16 positions][dim][16], V [position][dim padded to 16], so that no product needs a horizontal
// sum. Registers: tiles of query rows (tokens times the heads that share a kv head) against 16 to 64 positions, or
// against 16 to 64 dims over a whole chunk; K and V are converted once a tile. No inline functions, no other includes.
#include <cstddef>
#include <cstdint>

namespace heddle::cpu {

inline constexpr uint32_t kAttendChunk = 256;  // positions
inline constexpr uint32_t kPositionTile = 16;
inline constexpr uint32_t kAttendScores = 8 * kAttendChunk;  // floats of scratch beside the rows

// Query rows of one sequence that share a kv head: row i is head i % group of token i / group.
struct AttendUnit {
  const float* q;  // token 0, the group's first head; the heads of a token are adjacent
  size_t ldq;      // floats from token to token
  uint32_t n_tokens;
  uint32_t group;
  uint32_t head_dim;
  uint32_t padded_dim;  // head_dim rounded up to 16
  float scale;
  uint32_t first_position;  // KV index of token 0
  uint32_t window;          // 0: all
  const uint32_t* blocks;
  uint32_t block_size;
  size_t block_stride;  // bytes from block to block
  const uint8_t* k;     // block 0's K of this layer and kv head
  const uint8_t* v;
  uint32_t first_chunk;  // chunks [first, last) are computed: those that any row sees, or a part of them
  uint32_t last_chunk;
  float* out;  // like q, or null: leave partial results
  size_t ldo;
  float* partial;  // [last_chunk - first_chunk][rows][padded_dim + 16]: acc, then m, l; or null
  float* scratch;  // kAttendScores + rows * (2 padded_dim + 2) floats, 64-byte aligned
};

struct AttendKernels {
  void (*attend)(const AttendUnit& unit);      // of halves
  void (*attend_f32)(const AttendUnit& unit);  // of floats: Compute::f32
  // out of the partial results of chunks [first_chunk, last_chunk), all those that any row sees.
  void (*merge)(const AttendUnit& unit);
};

}  // namespace heddle::cpu
