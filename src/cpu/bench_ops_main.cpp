// What the ops beside the linear layers cost on this machine: overhead of a command, attention for decode (GB/s of K
// and V) and for prefill (share of the measured f32 peak), norms, activations and rotation.
//   bench_ops [threads] [scalar|avx2|avx512] [filter]
#include <fmt/format.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cmath>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/loop.h"
#include "cpu/cpu_device.h"
#include "cpu/machine_speed.h"

namespace {

using namespace heddle;
using namespace heddle::cpu;
using device::Tensor;
using device::TensorUse;

struct Model {
  const char* name;
  uint32_t layers, heads, kv_heads, dim, hidden, ffn;
  uint32_t width() const { return (heads + 2 * kv_heads) * dim; }
};
constexpr Model kModels[] = {{"SmolLM2-135M", 30, 9, 3, 64, 576, 1536}, {"Gemma3-270M", 18, 4, 1, 256, 640, 2048}};

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

struct Bench {
  Bench(uint32_t threads, Isa set)
      : isa(set), loop(make_loop(context)), team(*loop, {.helpers = threads - 1, .loop_is_member = true}) {}

  // Seconds of the fastest of several runs of what `append` appends.
  double best(CpuDevice& device, const std::function<void()>& append, int runs = 7) {
    double fastest = 1e9;
    for (int i = 0; i < runs; ++i) {
      bool done = false;
      const double begin = now_s();
      append();
      device.queue().on_done([&] { done = true; });
      while (!done) context.run_one();
      fastest = std::min(fastest, now_s() - begin);
    }
    return fastest;
  }

  Isa isa;
  boost::asio::io_context context;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work{context.get_executor()};
  std::unique_ptr<Loop> loop;
  Team team;
};

void bench_commands(Bench& bench) {
  CpuDevice device(bench.team, {.isa = bench.isa, .compute = {}, .threads_why = {}});
  struct Nothing {};
  for (const uint32_t chunks : {1u, 2u, 8u}) {
    constexpr int kCommands = 1000;
    const double s = bench.best(
        device,
        [&] {
          for (int i = 0; i < kCommands; ++i)
            bench.team.append<Nothing>(chunks, {}, [](const Nothing&, uint32_t, Worker&) {});
        },
        20);
    fmt::print("command of {} empty chunks: {:.2f} us\n", chunks, s / kCommands * 1e6);
  }
}

struct Work {
  std::vector<device::BatchSeq> seqs;
  std::vector<std::vector<BlockId>> blocks;
  std::vector<TokenId> tokens;
  std::vector<int32_t> positions;
  std::vector<uint32_t> row_seq;
  device::Batch batch;

  Work(uint32_t n_seqs, uint32_t first, uint32_t n_rows, uint32_t block_size) {
    const uint32_t n_blocks = (first + n_rows + block_size - 1) / block_size;
    for (uint32_t s = 0; s < n_seqs; ++s) {
      blocks.emplace_back();
      for (uint32_t b = 0; b < n_blocks; ++b) blocks.back().push_back(BlockId{b * n_seqs + s});
    }
    for (uint32_t s = 0; s < n_seqs; ++s) {
      seqs.push_back({SlotId{s}, s * n_rows, n_rows, first, blocks[s].data()});
      for (uint32_t i = 0; i < n_rows; ++i) {
        tokens.push_back(0);
        positions.push_back(static_cast<int32_t>(first + i));
        row_seq.push_back(s);
      }
    }
    batch = {n_seqs * n_rows, seqs, tokens, positions, row_seq, {}};
  }
};

void fill(const Tensor& t) {
  for (size_t i = 0; i < size_t{t.rows} * t.cols; ++i) t.data[i] = std::sin(static_cast<float>(i) * 0.37f) * 2.0f;
}

void bench_attention(Bench& bench, const Model& m, uint32_t n_seqs, uint32_t first, uint32_t n_rows, double peak,
                     double bandwidth) {
  CpuDevice device(bench.team, {.isa = bench.isa, .compute = {}, .threads_why = {}});
  constexpr uint32_t kBlock = 16;
  const Work work(n_seqs, first, n_rows, kBlock);
  const std::vector<device::KvSpec> layers(m.layers, {m.kv_heads, m.dim, 0});
  device.allocate_kv(layers, n_seqs * ((first + n_rows + kBlock - 1) / kBlock), kBlock);
  const auto memory = device.kv_memory();
  auto* halves = reinterpret_cast<uint16_t*>(memory.data());
  for (size_t i = 0; i < memory.size() / 2; ++i) halves[i] = static_cast<uint16_t>(0x3000 + i % 0x800);
  const uint32_t rows = n_seqs * n_rows;
  device.allocate_arenas(1, (size_t{rows} * (m.width() + m.heads * m.dim) * 4 + 4096) * 2);
  const Tensor qkv = device.tensor(0, rows, m.width(), TensorUse::plain);
  const Tensor out = device.tensor(0, rows, m.heads * m.dim, TensorUse::plain);
  fill(qkv);
  device::AttentionSpec spec{};
  spec.n_heads = m.heads;
  spec.n_kv_heads = m.kv_heads;
  spec.head_dim = m.dim;
  spec.scale = 1.0f / std::sqrt(static_cast<float>(m.dim));
  spec.rope_table = device.rope_table({}, m.dim, first + n_rows);
  const double attend = bench.best(device, [&] {
    for (uint32_t layer = 0; layer < m.layers; ++layer) {
      spec.layer = layer;
      device.attend(device.queue(), spec, work.batch, qkv, out);
    }
  });
  const double store = bench.best(device, [&] {
    for (uint32_t layer = 0; layer < m.layers; ++layer) {
      spec.layer = layer;
      device.rope_store(device.queue(), spec, work.batch, qkv);
    }
  });
  double pairs = 0;  // of a query row and a visible position, one head
  for (uint32_t i = 0; i < n_rows; ++i) pairs += first + i + 1;
  const double gmacs = 2 * pairs * n_seqs * m.heads * m.dim * m.layers / attend * 1e-9;
  const double gbs = double(n_seqs) * (first + n_rows) * m.kv_heads * m.dim * 4 * m.layers / attend * 1e-9;
  fmt::print(
      "{:13} {:2} x {:3} rows at {:5}: attend {:8.1f} us a layer, {:6.1f} GMAC/s = {:4.1f} % of peak, {:6.1f} GB/s = "
      "{:5.1f} % of bandwidth; rope_store {:6.1f} us\n",
      m.name, n_seqs, n_rows, first, attend / m.layers * 1e6, gmacs, 100 * gmacs / peak, gbs, 100 * gbs / bandwidth,
      store / m.layers * 1e6);
}

void bench_rows(Bench& bench, const Model& m, uint32_t rows) {
  CpuDevice device(bench.team, {.isa = bench.isa, .compute = {}, .threads_why = {}});
  device.allocate_arenas(1, (size_t{rows} * (2 * m.hidden + 3 * m.ffn) * 4 + 4096) * 4);
  const Tensor x = device.tensor(0, rows, m.hidden, TensorUse::plain),
               y = device.tensor(0, rows, m.hidden, TensorUse::plain);
  const Tensor gate_up = device.tensor(0, rows, 2 * m.ffn, TensorUse::plain);
  const Tensor gated = device.tensor(0, rows, m.ffn, TensorUse::linear_input);
  const Tensor normed = device.tensor(0, rows, m.hidden, TensorUse::linear_input);
  fill(x);
  fill(y);
  fill(gate_up);
  const auto weight = device.make_vector(std::vector<float>(m.hidden, 1e-3f));
  constexpr int kTimes = 30;
  const auto us = [&](const std::function<void()>& op) {
    return bench.best(device,
                      [&] {
                        for (int i = 0; i < kTimes; ++i) op();
                      }) /
           kTimes * 1e6;
  };
  const double norm = us([&] { device.norm(device.queue(), x, weight, 1e-5f, y); });
  const double plain = us([&] {
    device.gated(device.queue(), device::Activation::silu, gate_up, Tensor{gated.data, rows, m.ffn, nullptr});
  });
  // With the cells: any Linear that reads them switches quantisation on.
  std::vector<std::byte> bytes(32 * 34);
  const device::RawTensor raw{"w", device::QuantType::q8_0, 32, 32, bytes};
  const auto linear = device.make_linear({.parts = {raw}, .row_order = {}, .bias = {}});
  const double norm_cells = us([&] { device.add_norm(device.queue(), x, y, weight, 1e-5f, normed); });
  const double silu = us([&] { device.gated(device.queue(), device::Activation::silu, gate_up, gated); });
  const double gelu = us([&] { device.gated(device.queue(), device::Activation::gelu_tanh, gate_up, gated); });
  fmt::print(
      "{:13} {:3} rows: norm {:6.2f} us, add_norm + quantise {:6.2f}, silu {:6.2f}, silu + quantise {:6.2f}, gelu + "
      "quantise {:6.2f}\n",
      m.name, rows, norm, norm_cells, plain, silu, gelu);
}

}  // namespace

int main(int argc, char** argv) {
  const uint32_t threads = argc > 1 ? static_cast<uint32_t>(std::stoul(argv[1])) : 2;
  const auto isa = choose_isa(argc > 2 ? argv[2] : "");
  const std::string only = argc > 3 ? argv[3] : "";
  if (!isa || threads == 0) {
    fmt::print(stderr, "bench_ops: {}\n", isa ? "threads must be at least 1" : isa.error().message);
    return 1;
  }
  const auto wanted = [&](const char* what) { return only.empty() || only == what; };
  const MachineSpeed speed = measure_machine_speed(threads, *isa);
  const double peak = speed.f32_gmacs, bandwidth = speed.read_gbs;
  fmt::print("{}, {} threads: f32 peak {:.0f} GMAC/s, read bandwidth {:.1f} GB/s\n", isa_name(*isa), threads, peak,
             bandwidth);
  Bench bench(threads, *isa);
  if (wanted("commands")) bench_commands(bench);
  for (const Model& m : kModels) {
    if (wanted("decode"))
      for (const auto& [seqs, context] :
           {std::pair{1u, 127u}, {1u, 511u}, {1u, 2047u}, {1u, 8191u}, {8u, 511u}, {32u, 511u}})
        bench_attention(bench, m, seqs, context, 1, peak, bandwidth);
    if (wanted("prefill"))
      for (const auto& [first, rows] : {std::pair{0u, 128u}, {0u, 512u}, {1536u, 512u}, {7680u, 512u}})
        bench_attention(bench, m, 1, first, rows, peak, bandwidth);
    if (wanted("rows"))
      for (const uint32_t rows : {1u, 16u, 512u}) bench_rows(bench, m, rows);
  }
}
