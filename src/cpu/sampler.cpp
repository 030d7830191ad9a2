#include "cpu/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "cpu/kernels.h"
#include "cpu/philox.h"
#include "cpu/sample_row.h"

namespace heddle::cpu {
namespace {

// Logits that one chunk of a sampling command works on: about 10 us of memory traffic.
constexpr uint32_t kPart = 16 * kSampleChunk;
static_assert(kPart % 32 == 0, "a part begins with a whole word of a mask");

// A command that nobody runs, made now if there is none. Only the loop thread takes commands.
template <class C>
C& take(std::vector<std::unique_ptr<C>>& pool) {
  for (auto& command : pool)
    if (!command->in_use()) return command->use(), *command;
  pool.push_back(std::make_unique<C>());
  pool.back()->use();
  return *pool.back();
}

}  // namespace

struct Sampler::Change final : Sampler::Command {
  Sampler* sampler = nullptr;
  SlotId slot;
  bool join = false;
  Slot next;

  bool in_use() const { return busy_.load(std::memory_order_acquire); }
  void use() { busy_.store(true, std::memory_order_relaxed); }

  void run_chunk(uint32_t) noexcept override {
    Slot& current = sampler->slots_[slot.value];
    HEDDLE_CHECK_OP(current.occupied, ==, !join);
    if (join) std::swap(current, next);  // the old occupant's memory serves a later join
    current.occupied = join;
    busy_.store(false, std::memory_order_release);
  }
};

struct Sampler::Sample final : Sampler::Command {
  struct RowState {
    std::atomic<uint32_t> parts_left{0};
    std::atomic<bool> nan{false};
    RowScan scan;
  };

  Sampler* sampler = nullptr;
  device::Tensor logits;
  std::vector<device::SampleRow> rows;
  std::span<device::SampledToken> out;
  uint32_t n_parts = 0;                           // of a row
  std::vector<std::unique_ptr<RowState>> states;  // [>= rows]
  std::atomic<uint32_t> chunks_left{0};

  bool in_use() const { return busy_.load(std::memory_order_acquire); }
  void use() { busy_.store(true, std::memory_order_relaxed); }
  void set_chunks(uint32_t n) {
    n_chunks_ = n;
    chunks_left.store(n, std::memory_order_relaxed);
  }

  void run_chunk(uint32_t chunk) noexcept override {
    const uint32_t i = chunk / n_parts;
    RowState& state = *states[i];
    scan_part(i, chunk % n_parts, state);
    if (state.parts_left.fetch_sub(1, std::memory_order_acq_rel) == 1) finish(i, state);
    if (chunks_left.fetch_sub(1, std::memory_order_acq_rel) == 1) busy_.store(false, std::memory_order_release);
  }

  std::span<float> logits_of(uint32_t i) const {
    return {logits.data + size_t{rows[i].logits_row} * logits.cols, logits.cols};
  }

  void scan_part(uint32_t i, uint32_t part, RowState& state) {
    const Slot& slot = sampler->slots_[rows[i].slot.value];
    const std::span<float> row = logits_of(i);
    const uint32_t begin = part * kPart, end = std::min(logits.cols, begin + kPart);
    bool nan = bias_and_bound(slot, rows[i].token_index, row, begin, end);
    if (rows[i].mask != nullptr)
      nan |= sampler->kernels_.mask(row.data() + begin, end - begin, rows[i].mask + begin / 32);
    penalise(slot, row, begin, end);
    nan |= sampler->kernels_.scan(row.data() + begin, end - begin, state.scan.block_max.data() + begin / kSampleBlock);
    if (nan) return state.nan.store(true, std::memory_order_relaxed);
    if (needs_row_mass(slot.sampling, logits.cols))
      sum_chunks(sampler->kernels_, row, slot.sampling.temperature, begin / kSampleChunk, sample_chunks(end),
                 state.scan);
  }

  // Bias and minimum length for the ids in [begin, end). True if a logit that they touch is NaN: -inf would hide it.
  static bool bias_and_bound(const Slot& slot, uint32_t token_index, std::span<float> row, uint32_t begin,
                             uint32_t end) {
    const device::SlotSampling& s = slot.sampling;
    bool nan = false;
    const auto at = [&](TokenId token) -> float* {
      const auto id = static_cast<uint32_t>(token);
      if (id < begin || id >= end) return nullptr;
      nan |= std::isnan(row[id]);
      return &row[id];
    };
    for (const auto& [token, bias] : s.logit_bias)
      if (float* y = at(token)) *y += bias;
    if (token_index < s.min_tokens) {
      for (const TokenId token : s.end_tokens)
        if (float* y = at(token)) *y = -std::numeric_limits<float>::infinity();
    }
    return nan;
  }

  static void penalise(const Slot& slot, std::span<float> row, uint32_t begin, uint32_t end) {
    const device::SlotSampling& s = slot.sampling;
    for (const TokenCounts::Entry& entry : slot.counts.entries()) {
      const auto id = static_cast<uint32_t>(entry.token);
      if (id < begin || id >= end) continue;
      float* y = &row[id];
      *y = *y > 0 ? *y / s.repetition_penalty : *y * s.repetition_penalty;
      if (entry.n_generated == 0) continue;
      *y -= s.frequency_penalty * static_cast<float>(entry.n_generated);
      *y -= s.presence_penalty;
    }
  }

  void finish(uint32_t i, RowState& state) {
    Slot& slot = sampler->slots_[rows[i].slot.value];
    const device::SlotSampling& s = slot.sampling;
    TokenId token = -1;
    if (!state.nan.load(std::memory_order_relaxed)) {
      thread_local PickScratch scratch;  // large, and only as many are needed as there are threads
      token = pick_token(sampler->kernels_, logits_of(i), state.scan, s, philox_uniform(s.seed, rows[i].token_index),
                         scratch);
    }
    // A row of nothing but -inf, such as a mask without a token leaves, has none to offer; it ends like one with a NaN.
    out[i] = {token, token < 0};
    if (token < 0) return;
    slot.last_token = token;
    if (s.needs_counts()) slot.counts.add_generated(token);
  }
};

Sampler::Sampler(uint32_t n_slots, uint32_t vocab_size, Isa isa)
    : vocab_size_(vocab_size), kernels_(sample_kernels_of(isa)), slots_(n_slots) {}

Sampler::~Sampler() = default;

Sampler::Command& Sampler::join(SlotId slot, const device::SlotSampling& sampling, std::span<const TokenId> prompt,
                                std::span<const TokenId> generated) {
  HEDDLE_CHECK_OP(slot.value, <, slots_.size());
  const auto check_id = [&](TokenId token) { HEDDLE_CHECK_OP(static_cast<uint32_t>(token), <, vocab_size_); };
  for (const auto& [token, bias] : sampling.logit_bias) check_id(token);
  for (const TokenId token : sampling.end_tokens) check_id(token);

  Change& change = take(changes_);
  change.sampler = this;
  change.slot = slot;
  change.join = true;
  change.next.sampling = sampling;
  change.next.last_token = generated.empty() ? -1 : generated.back();
  change.next.counts.clear();
  if (sampling.needs_counts()) {
    for (const TokenId token : prompt) change.next.counts.add_prompt(token);
    for (const TokenId token : generated) change.next.counts.add_generated(token);
  }
  return change;
}

Sampler::Command& Sampler::leave(SlotId slot) {
  HEDDLE_CHECK_OP(slot.value, <, slots_.size());
  Change& change = take(changes_);
  change.sampler = this;
  change.slot = slot;
  change.join = false;
  return change;
}

Sampler::Command& Sampler::sample(device::Tensor logits, std::span<const device::SampleRow> rows,
                                  std::span<device::SampledToken> out) {
  HEDDLE_CHECK(!rows.empty());
  HEDDLE_CHECK_OP(rows.size(), ==, out.size());
  HEDDLE_CHECK_OP(logits.cols, ==, vocab_size_);
  for (const device::SampleRow& row : rows) {
    HEDDLE_CHECK_OP(row.slot.value, <, slots_.size());
    HEDDLE_CHECK_OP(row.logits_row, <, logits.rows);
  }
  Sample& command = take(samples_);
  command.sampler = this;
  command.logits = logits;
  command.rows.assign(rows.begin(), rows.end());
  command.out = out;
  command.n_parts = (vocab_size_ + kPart - 1) / kPart;
  while (command.states.size() < rows.size()) command.states.push_back(std::make_unique<Sample::RowState>());
  for (size_t i = 0; i < rows.size(); ++i) {
    Sample::RowState& state = *command.states[i];
    state.parts_left.store(command.n_parts, std::memory_order_relaxed);
    state.nan.store(false, std::memory_order_relaxed);
    state.scan.prepare(vocab_size_);
  }
  command.set_chunks(static_cast<uint32_t>(rows.size()) * command.n_parts);
  return command;
}

}  // namespace heddle::cpu
