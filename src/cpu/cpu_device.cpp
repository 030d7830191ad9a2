// Loading, memory and slots. The ops are in cpu_ops.cpp and cpu_attention.cpp.
#include "cpu/cpu_device.h"

#include <fmt/format.h>
#include <tbb/parallel_for.h>

#include <algorithm>

#include "base/check.h"
#include "cpu/act_quant.h"
#include "cpu/cpu_linear.h"

namespace heddle::cpu {
namespace {

constexpr size_t kPackBytes = size_t{256} << 10;  // of weights, in one task of the packing

size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

size_t values_bytes(uint32_t rows, uint32_t cols) { return round_up(size_t{rows} * cols * sizeof(float), 64); }

size_t cells_bytes(uint32_t rows, uint32_t cols, device::TensorUse use) {
  if (use == device::TensorUse::plain || cols % kCellValues != 0) return 0;
  return round_up(act_bytes(rows, cols), 64);
}

}  // namespace

CpuDevice::CpuDevice(Team& team, CpuOptions options)
    : CpuDevice(team, std::move(options), std::make_shared<CpuWeights>()) {}

CpuDevice::CpuDevice(Team& team, CpuOptions options, std::shared_ptr<CpuWeights> weights)
    : team_(team),
      options_(std::move(options)),
      weights_(std::move(weights)),
      ops_(op_kernels_of(options_.isa)),
      attend_(attend_kernels_of(options_.isa)),
      queue_(*this) {}

CpuDevice::~CpuDevice() { finish(); }

std::unique_ptr<CpuDevice> CpuDevice::sibling() const {
  return std::unique_ptr<CpuDevice>(new CpuDevice(team_, options_, weights_));
}

void CpuDevice::finish() {
  flush();
  team_.finish();
}

void CpuDevice::CpuQueue::on_done(std::function<void()> done) {
  device_.flush();
  device_.team_.on_done(std::move(done));
  device_.last_command_ = device_.team_.n_appended();
  device_.memory_.close(device_.last_command_);
  device_.plans_.clear();
}

void CpuDevice::CpuQueue::submit() {
  device_.flush();
  device_.team_.publish();
}

Result<std::unique_ptr<device::Linear>> CpuDevice::make_linear(const device::LinearSource& source) {
  auto packed = PackedLinear::plan(source, options_.compute, weights_->memory);
  if (!packed) return tl::unexpected(std::move(packed.error()));
  const uint32_t n_panels = packed->n_panels();
  const size_t panel_bytes = std::max<size_t>(1, packed->bytes() / std::max(1u, n_panels));
  const auto grain = static_cast<uint32_t>(std::clamp<size_t>(kPackBytes / panel_bytes, 1, std::max(1u, n_panels)));
  tbb::parallel_for(0u, (n_panels + grain - 1) / grain, [&](uint32_t task) {
    packed->pack_panels(source, task * grain, std::min((task + 1) * grain, n_panels));
  });
  if (packed->reads_cells()) weights_->reads_cells.store(true, std::memory_order_relaxed);
  return std::make_unique<CpuLinear>(std::move(*packed), source.bias, source.fine);
}

device::Vector CpuDevice::make_vector(std::span<const float> values) {
  auto copy = std::make_unique<float[]>(values.size());
  std::copy(values.begin(), values.end(), copy.get());
  const device::Vector vector{copy.get(), static_cast<uint32_t>(values.size())};
  const std::lock_guard lock(weights_->vectors_mutex);
  weights_->vectors.push_back(std::move(copy));
  return vector;
}

uint32_t CpuDevice::rope_table(const device::RopeSpec& spec, uint32_t head_dim, uint32_t n_positions) {
  auto& rope = weights_->rope;
  for (uint32_t i = 0; i < rope.size(); ++i)
    if (rope[i]->serves(spec, head_dim) && rope[i]->n_positions() >= n_positions) return i;
  rope.push_back(std::make_unique<RopeTable>(spec, head_dim, n_positions));
  return static_cast<uint32_t>(rope.size() - 1);
}

void CpuDevice::allocate_kv(std::span<const device::KvSpec> layers, uint32_t n_blocks, uint32_t block_size) {
  finish();
  kv_.allocate(layers, n_blocks, block_size,
               options_.compute == device::Compute::f32 ? sizeof(float) : sizeof(uint16_t));
}

void CpuDevice::allocate_slots(uint32_t n_slots, uint32_t vocab_size) {
  finish();
  n_slots_ = n_slots;
  vocab_size_ = vocab_size;
  sampler_ = std::make_unique<Sampler>(n_slots, vocab_size, options_.isa);
}

void CpuDevice::allocate_arenas(uint32_t n_arenas, size_t bytes_each) {
  finish();
  arenas_.clear();
  arenas_.resize(n_arenas);
  for (Arena& arena : arenas_) arena.memory = MappedMemory(bytes_each);
  team_.reserve_scratch(kGateScratch);
}

void CpuDevice::release_memory() {
  // What siblings have in the queue is none of this device's business; waiting for it would hold the loop up.
  HEDDLE_CHECK(held_.packed == nullptr);
  HEDDLE_CHECK_OP(team_.n_completed(), >=, last_command_);
  kv_.forget();
  for (Arena& arena : arenas_) {
    arena.memory.forget();
    arena.companions.clear();
    arena.used = arena.n_companions = 0;
  }
  memory_.clear();
  if (sampler_ != nullptr) sampler_ = std::make_unique<Sampler>(n_slots_, vocab_size_, options_.isa);
}

void CpuDevice::reset_arena(uint32_t arena) {
  arenas_[arena].used = 0;
  arenas_[arena].n_companions = 0;
}

device::Tensor CpuDevice::tensor(uint32_t arena, uint32_t rows, uint32_t cols, device::TensorUse use) {
  Arena& a = arenas_[arena];
  const size_t values = values_bytes(rows, cols), cells = cells_bytes(rows, cols, use);
  HEDDLE_CHECK_OP(a.used + values + cells, <=, a.memory.size());
  device::Tensor t{reinterpret_cast<float*>(a.memory.data() + a.used), rows, cols, nullptr};
  if (cells > 0) {
    if (a.n_companions == a.companions.size()) a.companions.push_back(std::make_unique<Companion>());
    Companion& companion = *a.companions[a.n_companions++];
    companion = {reinterpret_cast<ActCell*>(a.memory.data() + a.used + values), false};
    t.aux = &companion;
  }
  a.used += values + cells;
  return t;
}

size_t CpuDevice::tensor_bytes(uint32_t rows, uint32_t cols, device::TensorUse use) const {
  return values_bytes(rows, cols) + cells_bytes(rows, cols, use);
}

void CpuDevice::append_sampler(Sampler::Command& command) {
  flush();
  struct Args {
    Sampler::Command* command;
  };
  team_.append<Args>(command.n_chunks(), {&command},
                     [](const Args& args, uint32_t chunk, Worker&) { args.command->run_chunk(chunk); });
}

void CpuDevice::join(device::Queue&, SlotId slot, const device::SlotSampling& sampling, std::span<const TokenId> prompt,
                     std::span<const TokenId> generated) {
  append_sampler(sampler_->join(slot, sampling, prompt, generated));
}

void CpuDevice::leave(device::Queue&, SlotId slot) { append_sampler(sampler_->leave(slot)); }

void CpuDevice::sample(device::Queue&, device::Tensor logits, std::span<const device::SampleRow> rows,
                       std::span<device::SampledToken> out) {
  if (rows.empty()) return;
  append_sampler(sampler_->sample(logits, rows, out));
}

std::string CpuDevice::describe() const {
  std::string sets;
  for (const Isa isa : available_isas()) sets += fmt::format("{}{}", sets.empty() ? "" : ", ", isa_name(isa));
  std::string text = fmt::format("CPU: {} kernels (this machine has {}), {} compute thread{}", isa_name(options_.isa),
                                 sets, team_.n_threads(), team_.n_threads() == 1 ? "" : "s");
  if (!options_.threads_why.empty()) text += fmt::format(" ({})", options_.threads_why);
  if (options_.isa == Isa::scalar) text += "; the scalar kernels are for checking and are many times slower than AVX2";
  if (options_.compute == device::Compute::f32) text += "; weights and activations in f32";
  return text;
}

}  // namespace heddle::cpu
