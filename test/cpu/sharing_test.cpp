// What devices share and what they keep to themselves: block copies, siblings on one team, memory given back.
#include <doctest/doctest.h>

#include <cstring>
#include <random>
#include <vector>

#include "cpu/cpu_device.h"
#include "fake_loop.h"
#include "linear_harness.h"

using namespace heddle;
using namespace heddle::cpu;
using device::QuantType;
using device::Tensor;
using device::TensorUse;

namespace {

constexpr uint32_t kBlocks = 24;
const std::vector<device::KvSpec> kLayers = {{2, 64, 0}, {1, 48, 32}, {4, 96, 0}};

void drain(FakeLoop& loop, device::Device& device) {
  bool done = false;
  device.queue().on_done([&] { done = true; });
  loop.run_until([&] { return done; });
}

std::vector<std::byte> bytes_of(std::span<const std::byte> memory) { return {memory.begin(), memory.end()}; }

// A small feed-forward step, whose linear layers are held back for the op that follows.
struct Layer {
  std::unique_ptr<device::Linear> gate_up, down, head;
  device::Vector norm;

  explicit Layer(device::Device& device) {
    const auto make = [&](uint32_t out, uint32_t in, QuantType type, uint32_t seed) {
      const test::Weights weights = test::make_weights(type, out, in, seed);
      auto linear = device.make_linear({.parts = {weights.raw}, .row_order = {}, .bias = {}});
      REQUIRE(linear.has_value());
      return std::move(*linear);
    };
    gate_up = make(2 * 512, 256, QuantType::q4_1, 1);
    down = make(256, 512, QuantType::q6_k, 2);
    head = make(300, 256, QuantType::q8_0, 3);
    norm = device.make_vector(test::make_activations(1, 256, 4));
  }
};

struct Step {
  std::vector<float> input;
  uint32_t rows;
  Tensor x, logits;

  Step(uint32_t rows_, uint32_t seed) : input(test::make_activations(rows_, 256, seed)), rows(rows_) {}

  void forward(device::Device& device, const Layer& layer) {
    device::Queue& q = device.queue();
    device.reset_arena(0);
    x = device.tensor(0, rows, 256, TensorUse::plain);
    std::copy(input.begin(), input.end(), x.data);
    const Tensor normed = device.tensor(0, rows, 256, TensorUse::linear_input);
    const Tensor wide = device.tensor(0, rows, 1024, TensorUse::plain);
    const Tensor gated = device.tensor(0, rows, 512, TensorUse::linear_input);
    const Tensor down = device.tensor(0, rows, 256, TensorUse::plain);
    logits = device.tensor(0, rows, 300, TensorUse::plain);
    device.norm(q, x, layer.norm, 1e-5f, normed);
    device.linear(q, *layer.gate_up, normed, wide);
    device.gated(q, device::Activation::silu, wide, gated);
    device.linear(q, *layer.down, gated, down);
    device.linear(q, *layer.head, down, logits);  // from a plain tensor: its cells come from the step's memory
  }
  void take(device::Device& device, std::vector<float>& out) {
    out.resize(size_t{rows} * 300);
    device.copy_to_host(device.queue(), logits, out.data());
  }
};

}  // namespace

TEST_CASE("copied blocks hold the bytes of their sources in every layer, copy after copy, and no other block changes") {
  const uint32_t seed = 5;
  INFO("seed ", seed);
  for (const uint32_t helpers : {0u, 1u, 3u}) {
    for (const device::Compute compute : {device::Compute::automatic, device::Compute::f32}) {
      FakeLoop loop;
      Team team(loop, {.helpers = helpers, .loop_is_member = true});
      CpuDevice device(team, {.isa = available_isas().back(), .compute = compute, .threads_why = {}});
      device.allocate_kv(kLayers, kBlocks, 16);
      const size_t block = KvCache::block_bytes(kLayers, 16, compute == device::Compute::f32 ? 4 : 2);
      std::mt19937 random(seed);
      for (std::byte& byte : device.kv_memory()) byte = static_cast<std::byte>(random());
      std::vector<std::byte> expected = bytes_of(device.kv_memory());
      const std::vector<device::BlockCopy> copies = {
          {BlockId{3}, BlockId{0}}, {BlockId{3}, BlockId{kBlocks - 1}},  // one source, two copies
          {BlockId{7}, BlockId{5}}, {BlockId{1}, BlockId{2}},           {BlockId{9}, BlockId{1}},  // read before
          {BlockId{2}, BlockId{9}}};  // written before, and read before
      for (const device::BlockCopy& copy : copies)
        std::copy_n(expected.begin() + static_cast<std::ptrdiff_t>(copy.from.value * block), block,
                    expected.begin() + static_cast<std::ptrdiff_t>(copy.to.value * block));
      device.copy_blocks(device.queue(), copies);
      drain(loop, device);
      CHECK(bytes_of(device.kv_memory()) == expected);
      device.copy_blocks(device.queue(), {});
      drain(loop, device);
      CHECK(bytes_of(device.kv_memory()) == expected);
    }
  }
}

TEST_CASE("siblings compute with one copy of the weights, and their steps interleave without touching each other") {
  const uint32_t seed = 6;
  INFO("seed ", seed);
  for (const uint32_t helpers : {0u, 1u, 3u}) {
    CAPTURE(helpers);
    FakeLoop loop;
    Team team(loop, {.helpers = helpers, .loop_is_member = true, .capacity = 64});
    CpuDevice first(team, {.isa = available_isas().back(), .compute = {}, .threads_why = {}});
    const Layer layer(first);
    const size_t weights = first.weight_bytes();
    const auto second = first.sibling();
    CHECK(second->weight_bytes() == weights);
    CHECK(second->describe() == first.describe());
    device::Device* devices[] = {&first, second.get()};
    for (device::Device* device : devices) device->allocate_arenas(1, size_t{16} << 20);

    std::mt19937 random(seed);
    for (int round = 0; round < 60; ++round) {
      Step steps[] = {{1 + static_cast<uint32_t>(random() % 40), static_cast<uint32_t>(random())},
                      {1 + static_cast<uint32_t>(random() % 40), static_cast<uint32_t>(random())}};
      std::vector<float> alone[2], together[2];
      for (int i = 0; i < 2; ++i) {
        steps[i].forward(first, layer);
        steps[i].take(first, alone[i]);
        drain(loop, first);
      }
      // Both halves of one step lie around those of the other, or inside them.
      const bool nested = random() % 2 == 0;
      const int last = nested ? 0 : 1;
      int n_done = 0;
      for (int i = 0; i < 2; ++i) steps[i].forward(*devices[i], layer);
      for (const int i : {1 - last, last}) {
        steps[i].take(*devices[i], together[i]);
        devices[i]->queue().on_done([&n_done] { ++n_done; });
      }
      loop.run_until([&] { return n_done == 2; });
      CHECK(together[0] == alone[0]);
      CHECK(together[1] == alone[1]);
    }
    CHECK(first.weight_bytes() == weights);
    // What a step leaves for its commands is used again, however many commands the other device appends.
    CHECK(first.step_memory_bytes() <= size_t{1} << 20);
    CHECK(second->step_memory_bytes() <= size_t{1} << 20);
  }
}

TEST_CASE("released memory reads as zeros, slots are empty, and the device computes on with the same result") {
  FakeLoop loop;
  Team team(loop, {.helpers = 1, .loop_is_member = true});
  CpuDevice device(team, {.isa = available_isas().back(), .compute = {}, .threads_why = {}});
  const Layer layer(device);
  device.allocate_kv(kLayers, kBlocks, 16);
  device.allocate_slots(2, 300);
  device.allocate_arenas(1, size_t{16} << 20);
  Step step(9, 1);
  std::vector<float> before, after;
  step.forward(device, layer);
  step.take(device, before);
  device.join(device.queue(), SlotId{1}, {}, {}, {});
  drain(loop, device);
  std::memset(device.kv_memory().data(), 0xff, device.kv_memory().size());

  device.release_memory();
  for (const std::byte byte : device.kv_memory()) REQUIRE(byte == std::byte{0});
  CHECK(device.step_memory_bytes() == 0);
  // A join of a slot that is taken would abort.
  device.join(device.queue(), SlotId{1}, {}, {}, {});
  step.forward(device, layer);
  step.take(device, after);
  drain(loop, device);
  CHECK(after == before);
}

TEST_CASE("a device gives its memory back while a sibling's step is under way, and the step is none the worse") {
  FakeLoop loop;
  Team team(loop, {.helpers = 1, .loop_is_member = true});
  CpuDevice first(team, {.isa = available_isas().back(), .compute = {}, .threads_why = {}});
  const Layer layer(first);
  const auto second = first.sibling();
  first.allocate_kv(kLayers, kBlocks, 16);
  for (device::Device* device : {static_cast<device::Device*>(&first), static_cast<device::Device*>(second.get())})
    device->allocate_arenas(1, size_t{64} << 20);
  Step step(500, 1), small(3, 2);
  std::vector<float> alone, beside, unused;
  step.forward(*second, layer);
  step.take(*second, alone);
  drain(loop, *second);
  small.forward(first, layer);
  small.take(first, unused);
  drain(loop, first);
  step.forward(*second, layer);
  first.release_memory();
  step.take(*second, beside);
  drain(loop, *second);
  CHECK(beside == alone);
}

TEST_CASE("unloaded weights leave nothing behind, and loading again gives siblings the same results") {
  FakeLoop loop;
  Team team(loop, {.helpers = 1, .loop_is_member = true});
  CpuDevice first(team, {.isa = available_isas().back(), .compute = {}, .threads_why = {}});
  const auto second = first.sibling();
  second->allocate_arenas(1, size_t{16} << 20);
  auto layer = std::make_unique<Layer>(first);
  const size_t weights = first.weight_bytes();
  Step step(17, 3);
  std::vector<float> before, after;
  step.forward(*second, *layer);
  step.take(*second, before);
  drain(loop, *second);
  layer.reset();
  first.unload();
  CHECK(first.weight_bytes() == 0);
  CHECK(second->weight_bytes() == 0);
  layer = std::make_unique<Layer>(first);
  CHECK(second->weight_bytes() == weights);
  step.forward(*second, *layer);
  step.take(*second, after);
  drain(loop, *second);
  CHECK(after == before);
}
