#pragma once
// From a weight file to canonical weights on a device. A family first declares what it needs, giving each weight's
// names and shape and the place to put it; then load() compares the declarations with the file and packs in parallel.
// Missing, misshaped and left-over tensors are one error that lists their names. Owner: load_model, on its thread, for
// the time of loading; the places must outlive load(). Tensor names are GGUF's, without ".weight" and ".bias".
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "device/device.h"
#include "model/gguf_set.h"

namespace heddle::model {

struct LinearPart {
  std::string name;
  uint32_t rows = 0;
};

class Weights {
 public:
  // Rotary tables cover n_positions.
  Weights(const GgufSet& files, device::Device& device, uint32_t n_positions)
      : files_(files), device_(device), n_positions_(n_positions) {}

  uint32_t rope_table(const device::RopeSpec& spec, uint32_t head_dim) {
    return device_.rope_table(spec, head_dim, n_positions_);
  }

  // The parts, stacked along the output: [sum of rows, cols]. row_order as in LinearSource. With `bias`, every part has
  // one; they are stacked the same way (and are not permuted by row_order: no family needs both).
  void linear(std::unique_ptr<device::Linear>& place, std::vector<LinearPart> parts, uint32_t cols,
              std::vector<uint32_t> row_order = {}, bool bias = false, bool fine = false);
  void vector(device::Vector& place, std::string name, uint32_t size);
  // Tensors that need not be in the file and were read with the configuration.
  void may_have(const std::string& name) { read_before_.push_back(name + ".weight"); }

  Result<void> load();

 private:
  struct LinearTask {
    std::unique_ptr<device::Linear>* place;
    std::vector<LinearPart> parts;
    uint32_t cols;
    std::vector<uint32_t> row_order;
    bool bias;
    bool fine;  // as in LinearSource
    uint64_t file_bytes = 0;
  };
  struct VectorTask {
    device::Vector* place;
    std::string name;
    uint32_t size;
  };

  Result<void> check() const;
  Result<void> run(const LinearTask& task) const;

  const GgufSet& files_;
  device::Device& device_;
  uint32_t n_positions_;
  std::vector<LinearTask> linears_;
  std::vector<VectorTask> vectors_;
  std::vector<std::string> read_before_;
};

// The values of a one-dimensional tensor as f32.
std::vector<float> vector_values(const GgufTensor& tensor);

// Rows of `n_heads` heads stored for interleaved rotary pairs (2i, 2i + 1), in half-split order (i, i + head_dim / 2):
// appends to `order`, whose next row is `first`.
void append_half_split_order(std::vector<uint32_t>& order, uint32_t n_heads, uint32_t head_dim);
void append_same_order(std::vector<uint32_t>& order, uint32_t n_rows);

}  // namespace heddle::model
