#include <doctest/doctest.h>
#include <fmt/format.h>

#include "attention_harness.h"
#include "base/float16.h"

using namespace heddle;
using namespace heddle::cpu;
using namespace heddle::cpu::test;

namespace {

const AttentionShape kShapes[] = {
    {.n_heads = 9, .n_kv_heads = 3, .head_dim = 64, .window = 0, .block_size = 16, .qk_norm = false},
    {.n_heads = 4, .n_kv_heads = 1, .head_dim = 256, .window = 0, .block_size = 16, .qk_norm = true},
    {.n_heads = 4, .n_kv_heads = 1, .head_dim = 32, .window = 100, .block_size = 32, .qk_norm = true},
    {.n_heads = 3, .n_kv_heads = 3, .head_dim = 48, .window = 5, .block_size = 16, .qk_norm = false},
    {.n_heads = 10, .n_kv_heads = 2, .head_dim = 24, .window = 0, .block_size = 48, .qk_norm = false},
    {.n_heads = 14, .n_kv_heads = 1, .head_dim = 8, .window = 300, .block_size = 16, .qk_norm = true},
    {.n_heads = 2, .n_kv_heads = 1, .head_dim = 128, .window = 256, .block_size = 256, .qk_norm = false},
};

std::string name_of(const AttentionShape& s) {
  return fmt::format("heads {} kv {} dim {} window {} block {} norm {}", s.n_heads, s.n_kv_heads, s.head_dim, s.window,
                     s.block_size, s.qk_norm);
}

// Attention of the whole sequence in double, from the inputs that the device had: K and V as halves, or as they are.
std::vector<double> naive(const AttentionShape& shape, uint32_t length, const std::vector<float>& rotated_q,
                          const std::vector<std::vector<float>>& rotated_k, bool halves = true) {
  const auto kept = [&](float x) { return halves ? f16_to_f32(f32_to_f16(x)) : x; };
  const uint32_t dim = shape.head_dim, group = shape.n_heads / shape.n_kv_heads;
  std::vector<double> out(size_t{length} * shape.q_size());
  std::vector<std::vector<float>> rows;
  for (uint32_t p = 0; p < length; ++p) rows.push_back(qkv_row(shape, 0, p));
  for (uint32_t p = 0; p < length; ++p) {
    const uint32_t first = shape.window != 0 && p + 1 > shape.window ? p + 1 - shape.window : 0;
    for (uint32_t h = 0; h < shape.n_heads; ++h) {
      const uint32_t kv = h / group;
      const float* q = rotated_q.data() + (size_t{p} * shape.n_heads + h) * dim;
      std::vector<double> score(p + 1 - first);
      double top = -1e300, sum = 0;
      for (uint32_t j = first; j <= p; ++j) {
        double s = 0;
        for (uint32_t d = 0; d < dim; ++d) s += double{q[d]} * double{kept(rotated_k[j][kv * dim + d])};
        score[j - first] = s / std::sqrt(double{static_cast<float>(dim)});
        top = std::max(top, score[j - first]);
      }
      for (double& s : score) sum += s = std::exp(s - top);
      for (uint32_t d = 0; d < dim; ++d) {
        double value = 0;
        for (uint32_t j = first; j <= p; ++j) {
          const float v = rows[j][(shape.n_heads + shape.n_kv_heads + kv) * dim + d];
          value += score[j - first] * double{kept(v)};
        }
        out[(size_t{p} * shape.n_heads + h) * dim + d] = value / sum;
      }
    }
  }
  return out;
}

// q or k heads of a row, normed if the shape says so and rotated, in double.
std::vector<float> turned(const AttentionShape& shape, uint32_t position, bool keys) {
  const uint32_t dim = shape.head_dim, half = dim / 2;
  const auto row = qkv_row(shape, 0, position);
  const uint32_t first = keys ? shape.n_heads : 0, n = keys ? shape.n_kv_heads : shape.n_heads;
  const auto weight = norm_weight(dim, keys ? 1.1f : 0.8f);
  std::vector<float> out(size_t{n} * dim);
  for (uint32_t h = 0; h < n; ++h) {
    std::vector<double> x(row.begin() + (first + h) * dim, row.begin() + (first + h + 1) * dim);
    if (shape.qk_norm) {
      double squares = 0;
      for (const double v : x) squares += v * v;
      const double inverse = 1 / std::sqrt(squares / dim + 1e-6);
      for (uint32_t i = 0; i < dim; ++i) x[i] *= inverse * weight[i];
    }
    for (uint32_t i = 0; i < half; ++i) {
      const double angle = position * std::pow(10000.0, -2.0 * i / dim);
      const double c = std::cos(angle), s = std::sin(angle);
      out[h * dim + i] = static_cast<float>(x[i] * c - x[i + half] * s);
      out[h * dim + i + half] = static_cast<float>(x[i + half] * c + x[i] * s);
    }
  }
  return out;
}

}  // namespace

TEST_CASE("scalar attention is within 1e-3 of the formula in double, windows and odd head sizes included") {
  for (const AttentionShape& shape : kShapes) {
    CAPTURE(name_of(shape));
    const uint32_t length = 531;
    const auto result = run_attention(shape, {length}, chunked({length}, length), {});
    std::vector<std::vector<float>> keys;
    for (uint32_t p = 0; p < length; ++p) {
      keys.push_back(turned(shape, p, true));
      const auto q = turned(shape, p, false);
      for (uint32_t i = 0; i < shape.q_size(); ++i)
        REQUIRE(std::abs(result.q[0][size_t{p} * shape.q_size() + i] - q[i]) <= 4e-6f * (1 + std::abs(q[i])));
    }
    const auto expected = naive(shape, length, result.q[0], keys);
    // A key within an ulp of a tie between two halves may be rounded the other way: 1e-3, not 1e-6.
    double worst = 0;
    for (size_t i = 0; i < expected.size(); ++i) worst = std::max(worst, std::abs(result.out[0][i] - expected[i]));
    CHECK(worst < 1e-3);
  }
}

TEST_CASE("for compute f32 the cache holds floats: within 1e-5 of the formula in double, the same bits everywhere") {
  for (const AttentionShape& shape : kShapes) {
    CAPTURE(name_of(shape));
    const uint32_t length = 300;
    const RunOptions scalar{.compute = device::Compute::f32};
    const auto result = run_attention(shape, {length}, chunked({length}, length), scalar);
    std::vector<std::vector<float>> keys;
    for (uint32_t p = 0; p < length; ++p) keys.push_back(turned(shape, p, true));
    const auto expected = naive(shape, length, result.q[0], keys, false);
    double worst = 0;
    for (size_t i = 0; i < expected.size(); ++i) worst = std::max(worst, std::abs(result.out[0][i] - expected[i]));
    CHECK(worst < 1e-5);
    for (const Isa isa : available_isas()) {
      CAPTURE(isa_name(isa));
      for (const uint16_t stale : {uint16_t{0}, uint16_t{0x7fff}})  // 0x7fff7fff is a NaN of floats too
        CHECK(run_attention(shape, {length}, chunked({length}, 37),
                            {.isa = isa, .helpers = 1, .stale_half = stale, .compute = device::Compute::f32}) ==
              result);
    }
  }
}

TEST_CASE("every instruction set gives the scalar attention's bits") {
  for (const AttentionShape& shape : kShapes) {
    CAPTURE(name_of(shape));
    const std::vector<uint32_t> lengths{1, 17, 300, 530};
    const auto expected = run_attention(shape, lengths, chunked(lengths, 1000), {});
    for (const Isa isa : available_isas()) {
      CAPTURE(isa_name(isa));
      CHECK(run_attention(shape, lengths, chunked(lengths, 1000), {.isa = isa}) == expected);
      CHECK(run_attention(shape, lengths, chunked(lengths, 37), {.isa = isa}) == expected);
    }
  }
}

TEST_CASE("chunk size, batch, threads, block placement and stale blocks change no bit of attention") {
  const Isa best = available_isas().back();
  for (const AttentionShape& shape : kShapes) {
    CAPTURE(name_of(shape));
    const std::vector<uint32_t> lengths{530, 3, 270, 64};
    const auto expected = run_attention(shape, lengths, chunked(lengths, 1000), {.isa = best});
    for (const uint32_t chunk : {1u, 7u, 16u, 48u, 255u, 256u, 512u}) {
      CAPTURE(chunk);
      for (const uint32_t helpers : {0u, 1u, 3u}) {
        CAPTURE(helpers);
        CHECK(run_attention(shape, lengths, chunked(lengths, chunk),
                            {.isa = best, .helpers = helpers, .block_seed = chunk + helpers}) == expected);
      }
    }
    for (const uint16_t stale : {uint16_t{0}, uint16_t{0x7c00}, uint16_t{0xfe01}, uint16_t{0x3c00}})
      CHECK(run_attention(shape, lengths, chunked(lengths, 33), {.isa = best, .stale_half = stale}) == expected);
    // Alone, and in another order of rows.
    for (uint32_t s = 0; s < lengths.size(); ++s) {
      Schedule alone;
      for (uint32_t done = 0; done < lengths[s]; done += 29) alone.push_back({{s, std::min(29u, lengths[s] - done)}});
      const auto one = run_attention(shape, lengths, alone, {.isa = best, .helpers = 1});
      CHECK(std::memcmp(one.out[s].data(), expected.out[s].data(), one.out[s].size() * sizeof(float)) == 0);
    }
    const Schedule mixed{{{2, 100}, {0, 1}, {1, 2}}, {{0, 500}, {3, 64}}, {{1, 1}, {2, 1}, {0, 29}}, {{2, 169}}};
    CHECK(run_attention(shape, lengths, mixed, {.isa = best, .helpers = 1}) == expected);
  }
}

TEST_CASE("an infinity or NaN in a later position's value does not reach an earlier row of the same step") {
  // V overflows half precision at position 5; rows 0 to 4 of a prefill must not see it.
  const AttentionShape shape{.n_heads = 2, .n_kv_heads = 1, .head_dim = 16};
  for (const Isa isa : available_isas()) {
    CAPTURE(isa_name(isa));
    FakeLoop loop;
    Team team(loop, {.helpers = 0, .loop_is_member = true});
    CpuDevice device(team, {.isa = isa, .compute = {}, .threads_why = {}});
    const std::vector<device::KvSpec> layers{{1, 16, 0}};
    device.allocate_kv(layers, 2, 16);
    device::AttentionSpec spec{};
    spec.n_heads = 2;
    spec.n_kv_heads = 1;
    spec.head_dim = 16;
    spec.scale = 0.25f;
    spec.rope_table = device.rope_table({}, 16, 64);
    const std::vector<BlockId> blocks{BlockId{1}, BlockId{0}};
    const std::vector<device::BatchSeq> seqs{{SlotId{0}, 0, 8, 0, blocks.data()}};
    const std::vector<TokenId> tokens(8);
    const std::vector<int32_t> positions{0, 1, 2, 3, 4, 5, 6, 7};
    const std::vector<uint32_t> row_seq(8);
    const device::Batch batch{8, seqs, tokens, positions, row_seq, {}};
    device.allocate_arenas(1, 1 << 20);
    const device::Tensor qkv = device.tensor(0, 8, shape.width(), device::TensorUse::plain);
    const device::Tensor out = device.tensor(0, 8, 32, device::TensorUse::plain);
    for (uint32_t r = 0; r < 8; ++r) {
      auto row = qkv_row(shape, 9, r);
      if (r == 5) row[3 * 16 + 2] = 1e30f;
      if (r == 6) row[2 * 16 + 2] = std::nanf("");
      std::copy(row.begin(), row.end(), qkv.data + size_t{r} * shape.width());
    }
    device.rope_store(device.queue(), spec, batch, qkv);
    device.attend(device.queue(), spec, batch, qkv, out);
    team.finish();
    for (uint32_t r = 0; r < 8; ++r)
      for (uint32_t i = 0; i < 32; ++i) {
        CAPTURE(r);
        CAPTURE(i);
        const float value = out.data[r * 32 + i];
        if (r < 5 || (r == 5 && i % 16 != 2)) CHECK(std::isfinite(value));
        if (r == 5 && i % 16 == 2) CHECK(value == std::numeric_limits<float>::infinity());
        if (r > 5) CHECK(std::isnan(value));
      }
  }
}
