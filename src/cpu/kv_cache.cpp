#include "cpu/kv_cache.h"

#include "base/check.h"
#include "cpu/attend_kernels.h"

namespace heddle::cpu {
namespace {

constexpr size_t kLine = 64;

size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

size_t k_bytes(const device::KvSpec& spec, uint32_t block_size, uint32_t element_bytes) {
  return round_up(size_t{block_size} * spec.head_dim * element_bytes, kLine);
}

size_t v_bytes(const device::KvSpec& spec, uint32_t block_size, uint32_t element_bytes) {
  return round_up(block_size * round_up(spec.head_dim, 16) * element_bytes, kLine);
}

}  // namespace

size_t KvCache::block_bytes(std::span<const device::KvSpec> layers, uint32_t block_size, uint32_t element_bytes) {
  size_t bytes = 0;
  for (const device::KvSpec& spec : layers)
    bytes += spec.n_kv_heads * (k_bytes(spec, block_size, element_bytes) + v_bytes(spec, block_size, element_bytes));
  // Blocks that lie a multiple of 4 KiB apart would fight for the same cache sets: an odd number of lines spreads them.
  return round_up(bytes, 2 * kLine) + kLine;
}

void KvCache::allocate(std::span<const device::KvSpec> layers, uint32_t n_blocks, uint32_t block_size,
                       uint32_t element_bytes) {
  HEDDLE_CHECK(element_bytes == sizeof(uint16_t) || element_bytes == sizeof(float));
  HEDDLE_CHECK(block_size > 0 && block_size % kPositionTile == 0);
  block_size_ = block_size;
  n_blocks_ = n_blocks;
  block_stride_ = block_bytes(layers, block_size, element_bytes);
  layers_.clear();
  size_t at = 0;
  for (const device::KvSpec& spec : layers) {
    HEDDLE_CHECK(spec.n_kv_heads > 0 && spec.head_dim > 0 && spec.head_dim % 2 == 0);
    Layer layer{spec, at, k_bytes(spec, block_size, element_bytes), 0, v_bytes(spec, block_size, element_bytes)};
    layer.v_offset = at + spec.n_kv_heads * layer.k_bytes;
    at = layer.v_offset + spec.n_kv_heads * layer.v_bytes;
    layers_.push_back(layer);
  }
  memory_ = MappedMemory(n_blocks * block_stride_);
}

uint8_t* KvCache::k(uint32_t layer, uint32_t head) const {
  const Layer& l = layers_[layer];
  return reinterpret_cast<uint8_t*>(memory_.data() + l.k_offset + head * l.k_bytes);
}

uint8_t* KvCache::v(uint32_t layer, uint32_t head) const {
  const Layer& l = layers_[layer];
  return reinterpret_cast<uint8_t*>(memory_.data() + l.v_offset + head * l.v_bytes);
}

}  // namespace heddle::cpu
