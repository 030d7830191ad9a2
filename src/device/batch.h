#pragma once
// One step's rows as the device sees them. Built by the runner from a plan, in memory that lives until the step is
// done. Rows of one sequence are adjacent and ascending in position; a decode row and a prefill chunk differ only in
// n_rows.
#include <cstdint>
#include <span>

#include "base/ids.h"

namespace heddle::device {

struct BatchSeq {
  SlotId slot;
  uint32_t first_row = 0;  // index of its first row in the batch
  uint32_t n_rows = 0;
  uint32_t first_position = 0;      // KV index of its first row; positions below are already in the cache
  const BlockId* blocks = nullptr;  // block table: covers positions [0, first_position + n_rows)
};

struct Batch {
  uint32_t n_rows = 0;
  std::span<const BatchSeq> seqs;
  std::span<const TokenId>
      tokens;  // [n_rows]; a negative entry t means: the last token of slot -(t + 1), known on the device
  std::span<const int32_t>
      positions;                      // [n_rows] rotary position (apart from the KV index: other axes come with images)
  std::span<const uint32_t> row_seq;  // [n_rows] index into seqs
  // Rows for which logits are wanted: the head runs for these alone, in this order. A row may come several times:
  // sampling changes a row of logits in place, so sequences that sample from one row have a copy each.
  std::span<const uint32_t> head_rows;
};

// The K and V of block `from`, all layers, become those of block `to`.
struct BlockCopy {
  BlockId from, to;
};

}  // namespace heddle::device
