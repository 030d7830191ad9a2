#pragma once
// Plain descriptions of device memory. A Tensor does not own: buffers come from the runner's arena (one bump allocator
// a step slot) and from weights, and outlive every launched step that refers to them (release-after-flight).
#include <cstddef>
#include <cstdint>

namespace heddle::device {

enum class TensorUse : uint8_t { plain, linear_input };

// Row-major f32 activations: [rows, cols]. `aux` is the device's own companion of a tensor that feeds a linear layer
// (on the CPU: its quantised rows, written by the op that produced the tensor); families pass it on unseen.
struct Tensor {
  float* data = nullptr;
  uint32_t rows = 0;
  uint32_t cols = 0;
  void* aux = nullptr;
};

// A weight vector in device memory, f32: norm scales, biases, rope factors. Owned by the device's weight store.
struct Vector {
  const float* data = nullptr;
  uint32_t size = 0;
};

}  // namespace heddle::device
