#pragma once
// The CPU device: ops become commands of the worker team. Owner: the runner; loop thread only, but for loading
// (make_linear, make_vector, rope_table), which may run elsewhere while no device of the same weights computes.
// Arguments are trusted (HEDDLE_CHECK). Ops allocate nothing once the first steps have sized the recycled memory.
//
// Data parallel engines have a device each: siblings share the weights and the team, whose queue takes their commands
// as they come; KV cache, slots, arenas and everything that a step under way needs are a device's own.
//
// Which op leaves quantised rows behind: norm, add_norm, attend and gated, when their output was made with
// TensorUse::linear_input; linear() quantises other inputs in a command of its own. Whether a tensor's cells are those
// of its present values is known here, on the loop, when ops are appended: queue order is append order.
#include <memory>
#include <string>
#include <vector>

#include "cpu/act_cell.h"
#include "cpu/attend_plan.h"
#include "cpu/cpu_count.h"
#include "cpu/cpu_weights.h"
#include "cpu/isa.h"
#include "cpu/kernels.h"
#include "cpu/kv_cache.h"
#include "cpu/linear.h"
#include "cpu/sampler.h"
#include "cpu/step_memory.h"
#include "cpu/team.h"
#include "device/device.h"

namespace heddle::cpu {

struct CpuOptions {
  Isa isa = Isa::scalar;
  device::Compute compute = device::Compute::automatic;
  std::string threads_why;  // ThreadPlan::why, for describe()
};

class CpuDevice final : public device::Device {
 public:
  // The team is shared by all devices of the process, and outlives them.
  CpuDevice(Team& team, CpuOptions options);
  ~CpuDevice() override;  // waits for what was appended
  // Another device that computes with the weights of this one, now and after they were loaded again.
  std::unique_ptr<CpuDevice> sibling() const;
  // Gives back everything that was loaded: no Linear, Vector or rotary table may be used any more, by siblings neither.
  void unload() { weights_->clear(); }

  Result<std::unique_ptr<device::Linear>> make_linear(const device::LinearSource& source) override;
  device::Vector make_vector(std::span<const float> values) override;
  uint32_t rope_table(const device::RopeSpec& spec, uint32_t head_dim, uint32_t n_positions) override;
  void allocate_kv(std::span<const device::KvSpec> layers, uint32_t n_blocks, uint32_t block_size) override;
  void allocate_slots(uint32_t n_slots, uint32_t vocab_size) override;
  void allocate_arenas(uint32_t n_arenas, size_t bytes_each) override;
  void reset_arena(uint32_t arena) override;
  device::Tensor tensor(uint32_t arena, uint32_t rows, uint32_t cols, device::TensorUse use) override;
  size_t tensor_bytes(uint32_t rows, uint32_t cols, device::TensorUse use) const override;

  device::Queue& queue() override { return queue_; }
  void release_memory() override;

  void join(device::Queue&, SlotId, const device::SlotSampling&, std::span<const TokenId> prompt,
            std::span<const TokenId> generated) override;
  void leave(device::Queue&, SlotId) override;

  void copy_blocks(device::Queue&, std::span<const device::BlockCopy> copies) override;
  void embed(device::Queue&, const device::Linear& table, const device::Batch&, float scale,
             device::Tensor out) override;
  void norm(device::Queue&, device::Tensor x, device::Vector weight, float epsilon, device::Tensor out) override;
  void add_norm(device::Queue&, device::Tensor x, device::Tensor y, device::Vector weight, float epsilon,
                device::Tensor out) override;
  void norm_add(device::Queue&, device::Tensor y, device::Vector weight, float epsilon, device::Tensor x) override;
  void add(device::Queue&, device::Tensor x, device::Tensor y) override;
  void linear(device::Queue&, const device::Linear&, device::Tensor in, device::Tensor out) override;
  void rope_store(device::Queue&, const device::AttentionSpec&, const device::Batch&, device::Tensor qkv) override;
  void attend(device::Queue&, const device::AttentionSpec&, const device::Batch&, device::Tensor qkv,
              device::Tensor out) override;
  void gated(device::Queue&, device::Activation, device::Tensor gate_up, device::Tensor out) override;
  void gather_rows(device::Queue&, device::Tensor in, std::span<const uint32_t> rows, device::Tensor out) override;
  void sample(device::Queue&, device::Tensor logits, std::span<const device::SampleRow> rows,
              std::span<device::SampledToken> out) override;
  void copy_to_host(device::Queue&, device::Tensor from, float* to) override;

  std::string describe() const override;

  // For tests and the memory plan.
  std::span<std::byte> kv_memory() const { return kv_.memory(); }
  size_t step_memory_bytes() const { return memory_.allocated(); }
  size_t weight_bytes() const { return weights_->memory.allocated(); }

 private:
  class CpuQueue final : public device::Queue {
   public:
    explicit CpuQueue(CpuDevice& device) : device_(device) {}
    void on_done(std::function<void()> done) override;
    void submit() override;

   private:
    CpuDevice& device_;
  };
  static constexpr size_t kGateScratch = size_t{256} << 10;  // bytes of a worker's scratch for a tile of gate and up
  // What Tensor::aux points to.
  struct Companion {
    ActCell* cells = nullptr;
    bool fresh = false;  // the cells are those of the tensor's present values
  };
  struct Arena {
    MappedMemory memory;
    size_t used = 0;
    std::vector<std::unique_ptr<Companion>> companions;
    size_t n_companions = 0;
  };
  // A linear layer that waits for the next op: cpu_linear_ops.cpp.
  struct HeldLinear {
    const PackedLinear* packed = nullptr;
    LinearInput in;
    LinearOutput out;
    uint32_t rows = 0;
    const ActCell* rest = nullptr;  // second term of the input, or null
  };
  struct KnownPlan {
    const device::BatchSeq* seqs;
    size_t n_seqs;
    uint32_t n_heads, n_kv_heads, head_dim, window;
    AttendPlan plan;
  };

  static Companion* companion(const device::Tensor& t) { return static_cast<Companion*>(t.aux); }
  static void overwritten(const device::Tensor& t) {
    if (t.aux != nullptr) companion(t)->fresh = false;
  }
  // Cells that the command which writes `t` shall fill; null if it has none or no weights read any.
  ActCell* cells_to_write(const device::Tensor& t);
  const ActCell* quantised(const device::Tensor& t);
  const ActCell* quantised_rest(const device::Tensor& t, const ActCell* first_term);
  const AttendPlan& plan_of(const device::AttentionSpec& spec, const device::Batch& batch);
  double slow() const;
  void flush();   // appends the linear layer that was held back; every op begins with it
  void finish();  // flushes, and waits for all that was appended
  void append_gated(void (*activate)(const float*, const float*, uint32_t, float*), device::Tensor gate_up,
                    device::Tensor out, ActCell* cells);
  void append_norm(device::Tensor x, const float* y, device::Vector weight, float epsilon, device::Tensor out);
  void append_sampler(Sampler::Command& command);

  CpuDevice(Team& team, CpuOptions options, std::shared_ptr<CpuWeights> weights);

  Team& team_;
  const CpuOptions options_;
  const std::shared_ptr<CpuWeights> weights_;
  const OpKernels& ops_;
  const AttendKernels& attend_;
  CpuQueue queue_;
  KvCache kv_;
  uint32_t n_slots_ = 0, vocab_size_ = 0;
  std::unique_ptr<Sampler> sampler_;
  std::vector<Arena> arenas_;
  StepMemory memory_;
  HeldLinear held_;
  std::vector<KnownPlan> plans_;  // of the step being appended
  uint64_t last_command_ = 0;     // of the team, appended before the last on_done
};

}  // namespace heddle::cpu
