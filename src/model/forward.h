#pragma once
// The context through which a model family calls device ops: where they are appended, which rows they work on, and the
// arena that activations come from. So queues, batches (and later adapters and ranks) touch no family file. Made by the
// runner for one step, on the loop thread; ops return at once and cannot fail.
#include <cstdint>

#include "device/device.h"

namespace heddle::model {

class Forward {
 public:
  Forward(device::Device& device, device::Queue& queue, const device::Batch& batch, uint32_t arena)
      : device_(device), queue_(queue), batch_(batch), arena_(arena) {}

  uint32_t n_rows() const { return batch_.n_rows; }
  uint32_t n_head_rows() const { return static_cast<uint32_t>(batch_.head_rows.size()); }

  device::Tensor tensor(uint32_t rows, uint32_t cols, device::TensorUse use) {
    return device_.tensor(arena_, rows, cols, use);
  }

  void embed(const device::Linear& table, float scale, device::Tensor out) {
    device_.embed(queue_, table, batch_, scale, out);
  }
  void norm(device::Tensor x, device::Vector weight, float epsilon, device::Tensor out) {
    device_.norm(queue_, x, weight, epsilon, out);
  }
  void add_norm(device::Tensor x, device::Tensor y, device::Vector weight, float epsilon, device::Tensor out) {
    device_.add_norm(queue_, x, y, weight, epsilon, out);
  }
  void norm_add(device::Tensor y, device::Vector weight, float epsilon, device::Tensor x) {
    device_.norm_add(queue_, y, weight, epsilon, x);
  }
  void linear(const device::Linear& weights, device::Tensor in, device::Tensor out) {
    device_.linear(queue_, weights, in, out);
  }
  void rope_store(const device::AttentionSpec& spec, device::Tensor qkv) {
    device_.rope_store(queue_, spec, batch_, qkv);
  }
  void attend(const device::AttentionSpec& spec, device::Tensor qkv, device::Tensor out) {
    device_.attend(queue_, spec, batch_, qkv, out);
  }
  void gated(device::Activation activation, device::Tensor gate_up, device::Tensor out) {
    device_.gated(queue_, activation, gate_up, out);
  }
  // The head rows are all rows, each once and in order.
  bool all_rows_are_head_rows() const {
    if (n_head_rows() != n_rows()) return false;
    for (uint32_t i = 0; i < n_head_rows(); ++i)
      if (batch_.head_rows[i] != i) return false;
    return true;
  }
  // The rows for which logits are wanted, in a tensor of their own.
  device::Tensor head_rows(device::Tensor x, device::TensorUse use) {
    const device::Tensor out = tensor(n_head_rows(), x.cols, use);
    device_.gather_rows(queue_, x, batch_.head_rows, out);
    return out;
  }

 private:
  device::Device& device_;
  device::Queue& queue_;
  const device::Batch& batch_;
  uint32_t arena_;
};

}  // namespace heddle::model
