#include "sched/block_pool.h"

#include "base/check.h"

namespace heddle::sched {

BlockPool::BlockPool(uint32_t n_blocks) : blocks_(n_blocks + 1) {
  blocks_[n_blocks].next = blocks_[n_blocks].previous = n_blocks;
  for (uint32_t i = 0; i < n_blocks; ++i) link_back(i);
}

BlockId BlockPool::allocate() {
  const uint32_t index = blocks_.back().next;
  HEDDLE_CHECK_OP(index, <, n_total());
  unlink(index);
  blocks_[index].references = 1;
  return BlockId(index);
}

void BlockPool::touch(BlockId id) {
  HEDDLE_CHECK_OP(id.value, <, n_total());
  if (blocks_[id.value].references == 0) unlink(id.value);
  ++blocks_[id.value].references;
}

void BlockPool::release(BlockId id) {
  HEDDLE_CHECK_OP(id.value, <, n_total());
  Block& block = blocks_[id.value];
  HEDDLE_CHECK_OP(block.references, >, 0u);
  if (--block.references > 0) return;
  if (block.hashed)
    link_back(id.value);
  else
    link_front(id.value);
}

void BlockPool::set_hashed(BlockId id, bool hashed) {
  Block& block = blocks_[id.value];
  HEDDLE_CHECK_OP(block.references, >, 0u);  // a free block's place in the list depends on it
  block.hashed = hashed;
}

void BlockPool::forget_hashes() {
  HEDDLE_CHECK_OP(n_held(), ==, 0u);
  for (Block& block : blocks_) block.hashed = false;
  n_cached_ = 0;
}

std::vector<BlockId> BlockPool::free_list() const {
  std::vector<BlockId> list;
  for (uint32_t i = blocks_.back().next; i != n_total(); i = blocks_[i].next) list.emplace_back(i);
  return list;
}

void BlockPool::link_front(uint32_t index) {
  const uint32_t anchor = n_total(), first = blocks_[anchor].next;
  blocks_[index].previous = anchor;
  blocks_[index].next = first;
  blocks_[anchor].next = blocks_[first].previous = index;
  ++n_free_;
  n_cached_ += blocks_[index].hashed;
}

void BlockPool::link_back(uint32_t index) {
  const uint32_t anchor = n_total(), last = blocks_[anchor].previous;
  blocks_[index].next = anchor;
  blocks_[index].previous = last;
  blocks_[anchor].previous = blocks_[last].next = index;
  ++n_free_;
  n_cached_ += blocks_[index].hashed;
}

void BlockPool::unlink(uint32_t index) {
  const Block& block = blocks_[index];
  blocks_[block.previous].next = block.next;
  blocks_[block.next].previous = block.previous;
  --n_free_;
  n_cached_ -= block.hashed;
}

}  // namespace heddle::sched
