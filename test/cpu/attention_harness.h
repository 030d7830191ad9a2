#pragma once
// Sequences of random q, k and v run through a CpuDevice in any schedule, for comparing attention outputs bit by bit.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "cpu/cpu_device.h"
#include "cpu/cpu_linear.h"
#include "cpu/team.h"
#include "fake_loop.h"
#include "linear_harness.h"

namespace heddle::cpu::test {

struct AttentionShape {
  uint32_t n_heads = 6, n_kv_heads = 2, head_dim = 64, window = 0, block_size = 16;
  bool qk_norm = false;
  uint32_t q_size() const { return n_heads * head_dim; }
  uint32_t width() const { return (n_heads + 2 * n_kv_heads) * head_dim; }
};

// What a step computes of one sequence.
struct StepRows {
  uint32_t seq, n_rows;
};
using Schedule = std::vector<std::vector<StepRows>>;

struct RunOptions {
  Isa isa = Isa::scalar;
  uint32_t helpers = 0;
  uint32_t block_seed = 1;                               // where blocks lie
  uint16_t stale_half = 0x7e00;                          // what a former owner left in all of them: NaN
  device::Compute compute = device::Compute::automatic;  // f32: K and V are floats
};

// The qkv row of a position: a function of sequence and position alone.
inline std::vector<float> qkv_row(const AttentionShape& shape, uint32_t seq, uint32_t position) {
  std::mt19937 random(seq * 100'003 + position);
  std::normal_distribution<float> normal(0.0f, 1.3f);
  std::vector<float> row(shape.width());
  for (float& v : row) v = normal(random);
  return row;
}

inline std::vector<float> norm_weight(uint32_t n, float base) {
  std::vector<float> w(n);
  for (uint32_t i = 0; i < n; ++i) w[i] = base + 0.01f * static_cast<float>(i % 17);
  return w;
}

// All in one go, chunked, or one at a time.
inline Schedule chunked(std::vector<uint32_t> lengths, uint32_t chunk) {
  Schedule schedule;
  std::vector<uint32_t> done(lengths.size());
  for (bool more = true; more;) {
    std::vector<StepRows> step;
    for (uint32_t s = 0; s < lengths.size(); ++s)
      if (const uint32_t n = std::min(chunk, lengths[s] - done[s]); n > 0) {
        step.push_back({s, n});
        done[s] += n;
      }
    more = !step.empty();
    if (more) schedule.push_back(std::move(step));
  }
  return schedule;
}

struct AttentionResult {
  std::vector<std::vector<float>> out;  // [sequence][position * q_size]
  std::vector<std::vector<float>> q;    // rotated
  bool operator==(const AttentionResult& other) const {
    const auto same = [](const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b) {
      return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
        return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
      });
    };
    return same(out, other.out) && same(q, other.q);
  }
};

inline AttentionResult run_attention(const AttentionShape& shape, const std::vector<uint32_t>& lengths,
                                     const Schedule& schedule, const RunOptions& options) {
  FakeLoop loop;
  Team team(loop, {.helpers = options.helpers, .loop_is_member = true});
  CpuDevice device(team, {.isa = options.isa, .compute = options.compute, .threads_why = {}});
  // Two layers, so that the one under test does not begin at a block's first byte.
  const std::vector<device::KvSpec> layers(2, {shape.n_kv_heads, shape.head_dim, shape.window});
  std::vector<uint32_t> n_blocks;
  uint32_t total = 0, longest = 1;
  for (const uint32_t length : lengths) {
    n_blocks.push_back((length + shape.block_size - 1) / shape.block_size);
    total += n_blocks.back();
    longest = std::max(longest, length);
  }
  device.allocate_kv(layers, total + 3, shape.block_size);
  const auto memory = device.kv_memory();
  std::fill_n(reinterpret_cast<uint16_t*>(memory.data()), memory.size() / 2, options.stale_half);

  std::vector<uint32_t> order(total + 3);
  for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), std::mt19937(options.block_seed));
  std::vector<std::vector<BlockId>> blocks(lengths.size());
  for (uint32_t s = 0, next = 0; s < lengths.size(); ++s)
    for (uint32_t b = 0; b < n_blocks[s]; ++b) blocks[s].push_back(BlockId{order[next++]});

  device::AttentionSpec spec{.layer = 1,
                             .n_heads = shape.n_heads,
                             .n_kv_heads = shape.n_kv_heads,
                             .head_dim = shape.head_dim,
                             .scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim)),
                             .window = shape.window,
                             .rope_table = device.rope_table({.base = 10000.0f, .position_scale = 1.0f, .factors = {}},
                                                             shape.head_dim, longest),
                             .q_norm = {},
                             .k_norm = {},
                             .norm_epsilon = 1e-6f};
  if (shape.qk_norm) {
    spec.q_norm = device.make_vector(norm_weight(shape.head_dim, 0.8f));
    spec.k_norm = device.make_vector(norm_weight(shape.head_dim, 1.1f));
  }

  constexpr uint32_t kProjected = 16;
  std::unique_ptr<device::Linear> projector;
  const Weights weights = make_weights(device::QuantType::q8_0, kProjected, (shape.q_size() + 31) / 32 * 32, 4);
  if (shape.q_size() % 32 == 0) projector = *device.make_linear({.parts = {weights.raw}, .row_order = {}, .bias = {}});

  AttentionResult result;
  for (const uint32_t length : lengths) {
    result.out.emplace_back(size_t{length} * shape.q_size());
    result.q.emplace_back(size_t{length} * shape.q_size());
  }
  std::vector<uint32_t> done(lengths.size());
  for (const auto& step : schedule) {
    std::vector<device::BatchSeq> seqs;
    std::vector<TokenId> tokens;
    std::vector<int32_t> positions;
    std::vector<uint32_t> row_seq;
    for (const StepRows& rows : step) {
      seqs.push_back({SlotId{rows.seq}, static_cast<uint32_t>(tokens.size()), rows.n_rows, done[rows.seq],
                      blocks[rows.seq].data()});
      for (uint32_t i = 0; i < rows.n_rows; ++i) {
        tokens.push_back(0);
        positions.push_back(static_cast<int32_t>(done[rows.seq] + i));
        row_seq.push_back(static_cast<uint32_t>(seqs.size() - 1));
      }
    }
    const auto n_rows = static_cast<uint32_t>(tokens.size());
    const device::Batch batch{n_rows, seqs, tokens, positions, row_seq, {}};
    device.allocate_arenas(1, device.tensor_bytes(n_rows, shape.width(), device::TensorUse::plain) +
                                  device.tensor_bytes(n_rows, shape.q_size(), device::TensorUse::linear_input));
    const device::Tensor qkv = device.tensor(0, n_rows, shape.width(), device::TensorUse::plain);
    const device::Tensor out = device.tensor(0, n_rows, shape.q_size(), device::TensorUse::linear_input);
    for (uint32_t r = 0; r < n_rows; ++r) {
      const auto row = qkv_row(shape, step[row_seq[r]].seq, static_cast<uint32_t>(positions[r]));
      std::copy(row.begin(), row.end(), qkv.data + size_t{r} * shape.width());
    }
    std::fill_n(out.data, size_t{n_rows} * shape.q_size(), 777.0f);
    device::Queue& queue = device.queue();
    device.rope_store(queue, spec, batch, qkv);
    device.attend(queue, spec, batch, qkv, out);
    std::vector<float> projected(size_t{n_rows} * kProjected);
    const device::Tensor projection{projected.data(), n_rows, kProjected, nullptr};
    if (projector) device.linear(queue, *projector, out, projection);
    bool ended = false;
    queue.on_done([&] { ended = true; });
    loop.run_until([&] { return ended; });
    if (projector) {  // the cells that attend left behind are those of its output
      const std::vector<float> attended(out.data, out.data + size_t{n_rows} * shape.q_size());
      const auto expected = product(options.isa, static_cast<const CpuLinear&>(*projector).packed(), attended, n_rows);
      for (uint32_t r = 0; r < n_rows; ++r)
        REQUIRE(std::memcmp(&expected[r * (kProjected + 3)], &projected[r * kProjected], kProjected * 4) == 0);
    }
    for (uint32_t r = 0; r < n_rows; ++r) {
      const uint32_t seq = step[row_seq[r]].seq;
      const size_t at = static_cast<size_t>(positions[r]) * shape.q_size();
      std::copy_n(out.data + size_t{r} * shape.q_size(), shape.q_size(),
                  result.out[seq].begin() + static_cast<std::ptrdiff_t>(at));
      std::copy_n(qkv.data + size_t{r} * shape.width(), shape.q_size(),
                  result.q[seq].begin() + static_cast<std::ptrdiff_t>(at));
    }
    for (const StepRows& rows : step) done[rows.seq] += rows.n_rows;
  }
  return result;
}

}  // namespace heddle::cpu::test
