#pragma once
// The paged KV cache of all layers, as halves (as floats for Compute::f32, the reference). A block holds `block_size`
// positions (a multiple of 16) of every layer:
//     [layer][kv head] K tiles: [block_size / 16][head_dim][16 positions]
//     [layer][kv head] V:       [block_size][head_dim rounded up to 16]
// so a step's store is a transposition of single values, and neither product of attention needs a horizontal sum. A
// block of all layers is contiguous: memory is touched as blocks are first used, a sequence at a time. Blocks are not
// cleared: what a former owner left, NaN too, is removed by select. Owner: the device. Written by rope_store, read by
// attend.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "cpu/mapped_memory.h"
#include "device/attention.h"

namespace heddle::cpu {

class KvCache {
 public:
  // element_bytes: 2 (halves) or 4 (floats).
  void allocate(std::span<const device::KvSpec> layers, uint32_t n_blocks, uint32_t block_size,
                uint32_t element_bytes = 2);

  void forget() { memory_.forget(); }  // contents are lost, memory goes back to the system

  // Bytes of a block of these layers; what allocate() takes for each.
  static size_t block_bytes(std::span<const device::KvSpec> layers, uint32_t block_size, uint32_t element_bytes = 2);

  uint32_t block_size() const { return block_size_; }
  size_t block_stride() const { return block_stride_; }
  const device::KvSpec& layer(uint32_t layer) const { return layers_[layer].spec; }
  size_t n_layers() const { return layers_.size(); }
  uint32_t n_blocks() const { return n_blocks_; }
  // All layers of a block: block_stride() bytes.
  std::byte* block(BlockId id) const { return memory_.data() + id.value * block_stride_; }
  // Block 0's part of a layer and kv head.
  uint8_t* k(uint32_t layer, uint32_t head) const;
  uint8_t* v(uint32_t layer, uint32_t head) const;
  size_t k_head_bytes(uint32_t layer) const { return layers_[layer].k_bytes; }  // from kv head to kv head
  size_t v_head_bytes(uint32_t layer) const { return layers_[layer].v_bytes; }
  std::span<std::byte> memory() const { return {memory_.data(), memory_.size()}; }

 private:
  struct Layer {
    device::KvSpec spec;
    size_t k_offset, k_bytes;  // of a kv head, in a block
    size_t v_offset, v_bytes;
  };
  MappedMemory memory_;
  std::vector<Layer> layers_;
  size_t block_stride_ = 0;
  uint32_t block_size_ = 0;
  uint32_t n_blocks_ = 0;
};

}  // namespace heddle::cpu
