#pragma once
// The Device seam: coarse serving ops on ragged batches. An op appends to a queue and returns at once; it never
// allocates device memory and never synchronises. Ops of one queue run in order. All calls come from the loop thread,
// except loading (make_linear, make_vector), which may run on several threads at once before the first step. An op
// trusts its arguments (shapes are checked with HEDDLE_CHECK in the implementation): wrong input is a bug.
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"
#include "device/attention.h"
#include "device/batch.h"
#include "device/quant.h"
#include "device/sampling.h"
#include "device/tensor.h"

namespace heddle::device {

// A weight matrix [out, in] in the device's own packed form. The device owns the memory for as long as the Linear
// lives.
class Linear {
 public:
  virtual ~Linear() = default;
  virtual uint32_t in_features() const = 0;
  virtual uint32_t out_features() const = 0;
  virtual size_t bytes() const = 0;
};

// Parts are stacked along `out` in the given order (fused qkv, gate-up). row_order, when not empty, maps an output row
// to a row of the stack (rope layout). bias: empty or [out].
// fine: this layer's result is sensitive to rounding of its input; a device that quantises activations does it more
// finely here, at its cost.
struct LinearSource {
  std::vector<RawTensor> parts;
  std::vector<uint32_t> row_order;
  Vector bias;
  bool fine = false;
};

enum class Compute : uint8_t {
  automatic,
  f32
};  // f32: weights dequantised at load, activations kept f32 (the reference)
enum class Activation : uint8_t { silu, gelu_tanh };

// The place where ops are appended; one in-order stream of work.
class Queue {
 public:
  virtual ~Queue() = default;
  // Calls `done` on the loop after everything appended so far has run. Work is handed to the device by this call.
  virtual void on_done(std::function<void()> done) = 0;
  // Hands over what was appended so far, where on_done is yet to come: the host has something to do in between.
  virtual void submit() = 0;
};

class Device {
 public:
  virtual ~Device() = default;

  // ---- loading
  virtual Result<std::unique_ptr<Linear>> make_linear(const LinearSource& source) = 0;
  virtual Vector make_vector(std::span<const float> values) = 0;
  virtual uint32_t rope_table(const RopeSpec& spec, uint32_t head_dim,
                              uint32_t n_positions) = 0;  // equal specs share one
  virtual void allocate_kv(std::span<const KvSpec> layers, uint32_t n_blocks, uint32_t block_size) = 0;
  virtual void allocate_slots(uint32_t n_slots, uint32_t vocab_size) = 0;
  // Activation memory: an arena is a bump allocator; steps in flight use different ones, or one in queue order.
  // tensor() returns [rows, cols], reset_arena() starts over. `use` says whether the tensor feeds linear layers (it
  // then has room for the device's own form of its rows); a plain tensor may too, at the price of another pass over it.
  virtual void allocate_arenas(uint32_t n_arenas, size_t bytes_each) = 0;
  virtual void reset_arena(uint32_t arena) = 0;
  virtual Tensor tensor(uint32_t arena, uint32_t rows, uint32_t cols, TensorUse use = TensorUse::plain) = 0;
  // What tensor() takes from an arena.
  virtual size_t tensor_bytes(uint32_t rows, uint32_t cols, TensorUse use = TensorUse::plain) const = 0;

  virtual Queue& queue() = 0;

  // Gives the memory of KV and arenas back to the system; contents are lost, and every slot is empty. The same shapes
  // are there again, zeroed, at their next use. Only with nothing in the queue.
  virtual void release_memory() = 0;

  // ---- slots: sampling state of a sequence, resident on the device. Takes effect in queue order.
  virtual void join(Queue&, SlotId, const SlotSampling&, std::span<const TokenId> prompt,
                    std::span<const TokenId> generated) = 0;
  virtual void leave(Queue&, SlotId) = 0;

  // ---- ops
  // Each block's K and V of all layers, one copy after another: a block that one reads, a later one may write. `copies`
  // lives until on_done.
  virtual void copy_blocks(Queue&, std::span<const BlockCopy> copies) = 0;
  virtual void embed(Queue&, const Linear& table, const Batch&, float scale, Tensor out) = 0;  // [n_rows, hidden]
  virtual void norm(Queue&, Tensor x, Vector weight, float epsilon, Tensor out) = 0;           // out = rms(x) * w
  virtual void add_norm(Queue&, Tensor x, Tensor y, Vector weight, float epsilon,
                        Tensor out) = 0;                                                // x += y; out = rms(x) * w
  virtual void norm_add(Queue&, Tensor y, Vector weight, float epsilon, Tensor x) = 0;  // x += rms(y) * w
  virtual void add(Queue&, Tensor x, Tensor y) = 0;                                     // x += y
  virtual void linear(Queue&, const Linear&, Tensor in, Tensor out) = 0;
  virtual void rope_store(Queue&, const AttentionSpec&, const Batch&,
                          Tensor qkv) = 0;  // norms and rotates q and k in place, stores k and v
  virtual void attend(Queue&, const AttentionSpec&, const Batch&, Tensor qkv,
                      Tensor out) = 0;  // [n_rows, n_heads * head_dim]
  // act(gate) * up, [rows, 2n] -> [rows, n]. Consumes gate_up: its values mean nothing afterwards.
  virtual void gated(Queue&, Activation, Tensor gate_up, Tensor out) = 0;
  virtual void gather_rows(Queue&, Tensor in, std::span<const uint32_t> rows, Tensor out) = 0;
  // Samples each row; writes the token into the slot (the next step's input) and into out[i], host-readable after
  // on_done.
  virtual void sample(Queue&, Tensor logits, std::span<const SampleRow> rows, std::span<SampledToken> out) = 0;
  virtual void copy_to_host(Queue&, Tensor from, float* to) = 0;  // host-readable after on_done

  virtual std::string describe() const = 0;  // for the start-up log: instruction set, threads and why
};

}  // namespace heddle::device
