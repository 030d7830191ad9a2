#pragma once
// A device that is only right: every op of device/device.h as the plain loops of its definition, in f32 with f64 sums,
// run at once on the calling thread. Families and the runner are tested on it without the CPU device. It also keeps a
// trace of the ops with their shapes. Sampling is greedy.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/float16.h"
#include "device/dequantize.h"
#include "device/device.h"

namespace heddle {

class NaiveLinear final : public device::Linear {
 public:
  std::vector<float> w, bias;  // [out, in], [out] or empty
  uint32_t in = 0, out = 0;
  std::string name;  // of the first part

  uint32_t in_features() const override { return in; }
  uint32_t out_features() const override { return out; }
  size_t bytes() const override { return w.size() * sizeof(float); }
};

class NaiveDevice final : public device::Device, private device::Queue {
 public:
  std::vector<std::string> trace;
  bool defer = false;  // on_done waits for run_done
  std::vector<std::function<void()>> deferred;
  std::map<uint32_t, std::string> joined;  // slot -> seed, as text
  std::string refused;                     // make_linear fails for this tensor
  bool poison_logits = false;              // sample() sees NaN

  Result<std::unique_ptr<device::Linear>> make_linear(const device::LinearSource& source) override {
    auto linear = std::make_unique<NaiveLinear>();
    linear->name = source.parts.front().name;
    if (linear->name == refused) return fail(fmt::format("tensor {}: refused", refused));
    linear->in = source.parts.front().cols;
    std::vector<float> stack;
    for (const device::RawTensor& part : source.parts) {
      for (uint32_t r = 0; r < part.rows; ++r) {
        stack.resize(stack.size() + part.cols);
        device::dequantize_row(part.type, part.row(r), part.cols, stack.data() + stack.size() - part.cols);
      }
      linear->out += part.rows;
    }
    if (source.row_order.empty()) {
      linear->w = std::move(stack);
    } else {
      HEDDLE_CHECK_OP(source.row_order.size(), ==, linear->out);
      for (const uint32_t row : source.row_order)
        linear->w.insert(linear->w.end(), stack.begin() + row * linear->in, stack.begin() + (row + 1) * linear->in);
    }
    linear->bias.assign(source.bias.data, source.bias.data + source.bias.size);
    return linear;
  }
  device::Vector make_vector(std::span<const float> values) override {
    const std::lock_guard lock(mutex_);
    vectors_.push_back(std::make_unique<std::vector<float>>(values.begin(), values.end()));
    return {vectors_.back()->data(), static_cast<uint32_t>(values.size())};
  }
  uint32_t rope_table(const device::RopeSpec& spec, uint32_t, uint32_t) override {
    const auto found = std::find(ropes_.begin(), ropes_.end(), spec);
    if (found != ropes_.end()) return static_cast<uint32_t>(found - ropes_.begin());
    ropes_.push_back(spec);
    return static_cast<uint32_t>(ropes_.size() - 1);
  }
  void allocate_kv(std::span<const device::KvSpec> layers, uint32_t n_blocks, uint32_t block_size) override {
    block_size_ = block_size;
    n_blocks_ = n_blocks;
    for (const device::KvSpec& layer : layers)
      kv_.emplace_back(size_t{2} * n_blocks * block_size * layer.n_kv_heads * layer.head_dim,
                       std::numeric_limits<float>::quiet_NaN());
  }
  void allocate_slots(uint32_t n_slots, uint32_t) override { last_.assign(n_slots, -1); }
  void allocate_arenas(uint32_t n_arenas, size_t bytes_each) override {
    HEDDLE_CHECK_OP(n_arenas, ==, 1u);
    arena_limit_ = bytes_each;
  }
  void reset_arena(uint32_t) override { arena_.clear(), arena_used_ = 0; }
  device::Tensor tensor(uint32_t, uint32_t rows, uint32_t cols, device::TensorUse use) override {
    arena_used_ += tensor_bytes(rows, cols, use);
    if (arena_limit_ > 0) HEDDLE_CHECK_OP(arena_used_, <=, arena_limit_);
    arena_.push_back(
        std::make_unique<std::vector<float>>(size_t{rows} * cols, std::numeric_limits<float>::quiet_NaN()));
    return {arena_.back()->data(), rows, cols, nullptr};
  }
  size_t tensor_bytes(uint32_t rows, uint32_t cols, device::TensorUse) const override {
    return size_t{rows} * cols * sizeof(float);
  }
  device::Queue& queue() override { return *this; }
  void release_memory() override {
    trace.push_back("release memory");
    for (std::vector<float>& layer : kv_) std::fill(layer.begin(), layer.end(), 0.0f);
    std::fill(last_.begin(), last_.end(), -1);
    joined.clear();
  }

  void join(Queue&, SlotId slot, const device::SlotSampling& sampling, std::span<const TokenId> prompt,
            std::span<const TokenId> generated) override {
    trace.push_back(fmt::format("join {}: {}+{}", slot.value, prompt.size(), generated.size()));
    joined[slot.value] = fmt::format("{}", sampling.seed);
  }
  void leave(Queue&, SlotId slot) override {
    trace.push_back(fmt::format("leave {}", slot.value));
    joined.erase(slot.value);
  }

  void copy_blocks(Queue&, std::span<const device::BlockCopy> copies) override {
    trace.push_back(fmt::format("copy {} blocks", copies.size()));
    for (std::vector<float>& layer : kv_) {
      const size_t block = layer.size() / n_blocks_;
      for (const device::BlockCopy& copy : copies)
        std::copy_n(layer.data() + copy.from.value * block, block, layer.data() + copy.to.value * block);
    }
  }
  void embed(Queue&, const device::Linear& table, const device::Batch& batch, float scale,
             device::Tensor out) override {
    note("embed", out);
    const auto& t = static_cast<const NaiveLinear&>(table);
    for (uint32_t r = 0; r < batch.n_rows; ++r) {
      TokenId token = batch.tokens[r];
      if (token < 0) token = last_[static_cast<size_t>(-(token + 1))];
      HEDDLE_CHECK(token >= 0);
      for (uint32_t i = 0; i < t.in; ++i) row(out, r)[i] = t.w[static_cast<size_t>(token) * t.in + i] * scale;
    }
  }
  void norm(Queue&, device::Tensor x, device::Vector w, float epsilon, device::Tensor out) override {
    note("norm", out);
    for (uint32_t r = 0; r < x.rows; ++r) norm_row(row(x, r), w, epsilon, row(out, r));
  }
  void add_norm(Queue& q, device::Tensor x, device::Tensor y, device::Vector w, float epsilon,
                device::Tensor out) override {
    add(q, x, y);
    norm(q, x, w, epsilon, out);
  }
  void norm_add(Queue& q, device::Tensor y, device::Vector w, float epsilon, device::Tensor x) override {
    std::vector<float> normed(size_t{y.rows} * y.cols);
    const device::Tensor n{normed.data(), y.rows, y.cols, nullptr};
    norm(q, y, w, epsilon, n);
    add(q, x, n);
  }
  void add(Queue&, device::Tensor x, device::Tensor y) override {
    HEDDLE_CHECK_OP(x.rows, ==, y.rows);
    HEDDLE_CHECK_OP(x.cols, ==, y.cols);
    for (size_t i = 0; i < size_t{x.rows} * x.cols; ++i) x.data[i] += y.data[i];
  }
  void linear(Queue&, const device::Linear& linear, device::Tensor in, device::Tensor out) override {
    const auto& l = static_cast<const NaiveLinear&>(linear);
    note(l.name.c_str(), out);
    HEDDLE_CHECK_OP(in.cols, ==, l.in);
    HEDDLE_CHECK_OP(out.cols, ==, l.out);
    HEDDLE_CHECK_OP(in.rows, ==, out.rows);
    for (uint32_t r = 0; r < in.rows; ++r) {
      for (uint32_t o = 0; o < l.out; ++o) {
        const float* w = l.w.data() + size_t{o} * l.in;
        double sums[8] = {};
        uint32_t i = 0;
        for (; i + 8 <= l.in; i += 8)
          for (uint32_t j = 0; j < 8; ++j)
            sums[j] += static_cast<double>(row(in, r)[i + j]) * static_cast<double>(w[i + j]);
        double sum = 0;
        for (; i < l.in; ++i) sum += static_cast<double>(row(in, r)[i]) * static_cast<double>(w[i]);
        for (const double s : sums) sum += s;
        row(out, r)[o] = static_cast<float>(sum) + (l.bias.empty() ? 0.0f : l.bias[o]);
      }
    }
  }
  void rope_store(Queue&, const device::AttentionSpec& spec, const device::Batch& batch, device::Tensor qkv) override {
    note("rope_store", qkv);
    const uint32_t d = spec.head_dim;
    for (uint32_t r = 0; r < batch.n_rows; ++r) {
      const device::BatchSeq& seq = batch.seqs[batch.row_seq[r]];
      const uint32_t at = seq.first_position + (r - seq.first_row);
      float* x = row(qkv, r);
      for (uint32_t h = 0; h < spec.n_heads + spec.n_kv_heads; ++h) {
        const device::Vector w = h < spec.n_heads ? spec.q_norm : spec.k_norm;
        if (w.size > 0) norm_row(x + h * d, w, spec.norm_epsilon, x + h * d, d);
        rotate(x + h * d, ropes_[spec.rope_table], d, batch.positions[r]);
      }
      for (uint32_t h = 0; h < spec.n_kv_heads; ++h) {
        for (uint32_t i = 0; i < d; ++i) {
          kv(spec, seq, at, h, 0)[i] = x[(spec.n_heads + h) * d + i];
          kv(spec, seq, at, h, 1)[i] = x[(spec.n_heads + spec.n_kv_heads + h) * d + i];
        }
      }
    }
  }
  void attend(Queue&, const device::AttentionSpec& spec, const device::Batch& batch, device::Tensor qkv,
              device::Tensor out) override {
    note("attend", out);
    const uint32_t d = spec.head_dim;
    for (uint32_t r = 0; r < batch.n_rows; ++r) {
      const device::BatchSeq& seq = batch.seqs[batch.row_seq[r]];
      const uint32_t at = seq.first_position + (r - seq.first_row);
      const uint32_t first = spec.window > 0 && at + 1 > spec.window ? at + 1 - spec.window : 0;
      for (uint32_t h = 0; h < spec.n_heads; ++h) {
        const uint32_t kv_head = h / (spec.n_heads / spec.n_kv_heads);
        std::vector<double> scores;
        double max = -1e300, sum = 0;
        for (uint32_t p = first; p <= at; ++p) {
          double dot = 0;
          for (uint32_t i = 0; i < d; ++i)
            dot += static_cast<double>(row(qkv, r)[h * d + i]) * static_cast<double>(kv(spec, seq, p, kv_head, 0)[i]);
          scores.push_back(dot * static_cast<double>(spec.scale));
          max = std::max(max, scores.back());
        }
        for (double& s : scores) sum += s = std::exp(s - max);
        for (uint32_t i = 0; i < d; ++i) {
          double value = 0;
          for (uint32_t p = first; p <= at; ++p)
            value += scores[p - first] / sum * static_cast<double>(kv(spec, seq, p, kv_head, 1)[i]);
          row(out, r)[h * d + i] = static_cast<float>(value);
        }
      }
    }
  }
  void gated(Queue&, device::Activation activation, device::Tensor gate_up, device::Tensor out) override {
    note(activation == device::Activation::silu ? "silu" : "gelu_tanh", out);
    for (uint32_t r = 0; r < out.rows; ++r) {
      for (uint32_t i = 0; i < out.cols; ++i) {
        const auto g = static_cast<double>(row(gate_up, r)[i]);
        const double up = static_cast<double>(row(gate_up, r)[out.cols + i]);
        const double act = activation == device::Activation::silu
                               ? g / (1 + std::exp(-g))
                               : 0.5 * g * (1 + std::tanh(std::sqrt(2 / M_PI) * (g + 0.044715 * g * g * g)));
        row(out, r)[i] = static_cast<float>(act * up);
      }
    }
  }
  void gather_rows(Queue&, device::Tensor in, std::span<const uint32_t> rows, device::Tensor out) override {
    note("gather", out);
    for (size_t i = 0; i < rows.size(); ++i)
      std::memcpy(row(out, static_cast<uint32_t>(i)), row(in, rows[i]), in.cols * sizeof(float));
  }
  void sample(Queue&, device::Tensor logits, std::span<const device::SampleRow> rows,
              std::span<device::SampledToken> out) override {
    note("sample", {nullptr, static_cast<uint32_t>(rows.size()), logits.cols, nullptr});
    for (size_t i = 0; i < rows.size(); ++i) {
      float* y = row(logits, rows[i].logits_row);
      if (rows[i].mask != nullptr)
        for (uint32_t t = 0; t < logits.cols; ++t)
          if ((rows[i].mask[t / 32] >> t % 32 & 1) == 0) y[t] = -std::numeric_limits<float>::infinity();
      out[i] = poison_logits
                   ? device::SampledToken{-1, true}
                   : device::SampledToken{static_cast<TokenId>(std::max_element(y, y + logits.cols) - y), false};
      last_[rows[i].slot.value] = out[i].token;
    }
  }
  void copy_to_host(Queue&, device::Tensor from, float* to) override {
    note("copy_to_host", from);
    std::memcpy(to, from.data, size_t{from.rows} * from.cols * sizeof(float));
  }
  std::string describe() const override { return "naive"; }

  void run_done() {
    const auto calls = std::move(deferred);
    deferred.clear();
    for (const auto& call : calls) call();
  }

 private:
  void on_done(std::function<void()> done) override {
    if (defer) return deferred.push_back(std::move(done));
    done();
  }
  void submit() override { trace.emplace_back("submit"); }
  void note(const char* op, device::Tensor t) { trace.push_back(fmt::format("{} [{}, {}]", op, t.rows, t.cols)); }
  static float* row(device::Tensor t, uint32_t r) { return t.data + size_t{r} * t.cols; }
  static void norm_row(const float* x, device::Vector w, float epsilon, float* out, uint32_t n = 0) {
    if (n == 0) n = w.size;
    HEDDLE_CHECK_OP(n, ==, w.size);
    double squares = 0;
    for (uint32_t i = 0; i < n; ++i) squares += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    const double inverse = 1 / std::sqrt(squares / n + static_cast<double>(epsilon));
    for (uint32_t i = 0; i < n; ++i) out[i] = static_cast<float>(static_cast<double>(x[i]) * inverse) * w.data[i];
  }
  static void rotate(float* x, const device::RopeSpec& spec, uint32_t d, int32_t position) {
    for (uint32_t i = 0; i < d / 2; ++i) {
      const double factor = spec.factors.empty() ? 1.0 : static_cast<double>(spec.factors[i]);
      const double angle = position * static_cast<double>(spec.position_scale) *
                           std::pow(static_cast<double>(spec.base), -2.0 * i / d) / factor;
      const double a = static_cast<double>(x[i]), b = static_cast<double>(x[i + d / 2]);
      x[i] = static_cast<float>(a * std::cos(angle) - b * std::sin(angle));
      x[i + d / 2] = static_cast<float>(b * std::cos(angle) + a * std::sin(angle));
    }
  }
  float* kv(const device::AttentionSpec& spec, const device::BatchSeq& seq, uint32_t at, uint32_t head,
            uint32_t which) {
    const size_t token = size_t{seq.blocks[at / block_size_].value} * block_size_ + at % block_size_;
    return kv_[spec.layer].data() + ((token * 2 + which) * spec.n_kv_heads + head) * spec.head_dim;
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<std::vector<float>>> vectors_, arena_;
  std::vector<device::RopeSpec> ropes_;
  std::vector<std::vector<float>> kv_;
  std::vector<TokenId> last_;
  uint32_t block_size_ = 16, n_blocks_ = 0;
  size_t arena_limit_ = 0, arena_used_ = 0;
};

}  // namespace heddle
