#pragma once
// The merge loop that byte-level BPE and SentencePiece BPE share: of all adjacent pairs that may merge, always the one
// with the lowest rank, leftmost first. Short words go through an array that is scanned; long ones through a heap of
// (rank, position) over a linked list, n log n at worst. Not recursive. One MergeBuffers a call; no shared state.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "base/ids.h"

namespace heddle::text {

inline constexpr uint32_t kNoRank = std::numeric_limits<uint32_t>::max();

struct Merge {
  uint32_t rank = kNoRank;
  TokenId id = -1;
};

// A piece of the word: bytes [begin, begin + size), and its token, -1 if it is none.
struct Symbol {
  uint32_t begin;
  uint32_t size;
  TokenId id;
};

struct MergeBuffers {
  std::vector<Symbol> symbols;
  std::vector<Merge> pair;  // what symbol i and the next one make
  std::vector<uint32_t> previous, next;
  std::vector<uint64_t> heap;  // rank << 32 | position, smallest on top
};

inline constexpr size_t kScanLimit = 24;  // above it the heap is faster

// Merges `symbols` in place and returns how many are left. PairOf: (const Symbol&, const Symbol&) -> Merge.
template <class PairOf>
size_t merge_by_scan(std::span<Symbol> symbols, PairOf&& pair_of, uint64_t& steps) {
  std::array<Merge, kScanLimit> pair;
  size_t n = symbols.size();
  for (size_t i = 0; i + 1 < n; ++i) pair[i] = pair_of(symbols[i], symbols[i + 1]);
  steps += n;
  while (n > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < n; ++i)
      if (pair[i].rank < pair[best].rank) best = i;
    steps += n;
    if (pair[best].rank == kNoRank) break;
    symbols[best].size += symbols[best + 1].size;
    symbols[best].id = pair[best].id;
    for (size_t i = best + 1; i + 1 < n; ++i) {
      symbols[i] = symbols[i + 1];
      pair[i] = pair[i + 1];
    }
    --n;
    if (best > 0) pair[best - 1] = pair_of(symbols[best - 1], symbols[best]);
    if (best + 1 < n) pair[best] = pair_of(symbols[best], symbols[best + 1]);
  }
  return n;
}

// The same over buffers.symbols, for any length.
template <class PairOf>
void merge_by_heap(MergeBuffers& buffers, PairOf&& pair_of, uint64_t& steps) {
  auto& [symbols, pair, previous, next, heap] = buffers;
  const auto n = static_cast<uint32_t>(symbols.size());
  pair.assign(n, {});
  previous.resize(n);
  next.resize(n);
  heap.clear();
  const auto key = [&](uint32_t i) { return static_cast<uint64_t>(pair[i].rank) << 32 | i; };
  for (uint32_t i = 0; i < n; ++i) {
    previous[i] = i - 1;  // wraps for the first, which is never read
    next[i] = i + 1;
    if (i + 1 == n) break;
    pair[i] = pair_of(symbols[i], symbols[i + 1]);
    if (pair[i].rank != kNoRank) heap.push_back(key(i));
  }
  std::ranges::make_heap(heap, std::greater<>());
  steps += n + heap.size();
  const auto update = [&](uint32_t i) {
    pair[i] = next[i] < n ? pair_of(symbols[i], symbols[next[i]]) : Merge{};
    ++steps;
    if (pair[i].rank == kNoRank) return;
    heap.push_back(key(i));
    std::ranges::push_heap(heap, std::greater<>());
    ++steps;
  };
  while (!heap.empty()) {
    std::ranges::pop_heap(heap, std::greater<>());
    const uint64_t top = heap.back();
    heap.pop_back();
    ++steps;
    const auto i = static_cast<uint32_t>(top);
    if (pair[i].rank != static_cast<uint32_t>(top >> 32)) continue;  // this pair is gone
    const uint32_t gone = next[i];
    symbols[i].size += symbols[gone].size;
    symbols[i].id = pair[i].id;
    next[i] = next[gone];
    if (next[gone] < n) previous[next[gone]] = i;
    pair[gone].rank = kNoRank;
    update(i);
    if (i > 0) update(previous[i]);
  }
  size_t left = 0;
  for (uint32_t i = 0; i < n; i = next[i]) symbols[left++] = symbols[i];
  symbols.resize(left);
}

}  // namespace heddle::text
