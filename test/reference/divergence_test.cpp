// How far the normal path (quantised weights and activations, f16 KV) is from --compute f32, over the full vocabulary,
// on English, code and other languages: test/data/model/kl_text.txt, documents between lines of "%%". Its parts: prose
// and code written for it, this project's own code, the King James Bible (Ecclesiastes, Ruth, Matthew 5, ...) and poems
// of the Tang dynasty; sha256 7ea04763a84920187820db667d889a87ace06ece62b48bc8a808d556ec6b3ea9.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <tbb/parallel_for.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "cpu/kernels.h"
#include "reference/cpu_model.h"
#include "text/gguf_vocab.h"
#include "text/tokenizer.h"

namespace heddle {
namespace {

constexpr uint32_t kRows = 64;        // a step
constexpr uint32_t kSequence = 1024;  // tokens; longer documents become several

std::vector<std::string> documents() {
  std::ifstream file(HEDDLE_SOURCE_DIR "/test/data/model/kl_text.txt");
  REQUIRE(file.good());
  std::vector<std::string> out(1);
  for (std::string line; std::getline(file, line);) {
    if (line == "%%") {
      out.emplace_back();
    } else {
      out.back() += line + "\n";
    }
  }
  return out;
}

std::vector<std::vector<TokenId>> sequences(const char* path) {
  const model::GgufSet files = open_model(path);
  const auto vocab = text::read_vocab(files.metadata());
  REQUIRE_MESSAGE(vocab.has_value(), vocab.error().message);
  const auto tokenizer = text::make_tokenizer(*vocab);
  REQUIRE_MESSAGE(tokenizer.has_value(), tokenizer.error().message);
  const bool add_bos = std::string_view(path) == kGemma;  // trained with one; SmolLM2 without
  std::vector<std::vector<TokenId>> out;
  for (const std::string& document : documents()) {
    const std::vector<TokenId> ids = (*tokenizer)->encode(document, false);
    for (size_t at = 0; at < ids.size(); at += kSequence) {
      std::vector<TokenId>& sequence = out.emplace_back();
      if (add_bos) sequence.push_back((*tokenizer)->vocab().bos());
      sequence.insert(sequence.end(), ids.begin() + static_cast<std::ptrdiff_t>(at),
                      ids.begin() + static_cast<std::ptrdiff_t>(std::min(ids.size(), at + kSequence)));
    }
  }
  return out;
}

// Of one position: reference p, candidate q.
struct Row {
  double kl = 0;                // sum of p (ln p - ln q)
  double margin = 0;            // of the reference: ln p of the best less ln p of the second
  bool agrees = false;          // the same best token
  double log_p = 0, log_q = 0;  // of the token that follows, 0 at the end
  bool followed = false;
};

struct Distribution {
  std::vector<float> exps;
  double log_sum;  // of the logits' exponentials
  size_t best;

  explicit Distribution(std::span<const float> logits) : exps(logits.size()) {
    best = static_cast<size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    const auto& kernels = cpu::sample_kernels_of(cpu::available_isas().back());
    kernels.exps(logits.data(), static_cast<uint32_t>(logits.size()), logits[best], 1.0f, exps.data());
    double sum = 0;
    for (const float e : exps) sum += static_cast<double>(e);
    log_sum = static_cast<double>(logits[best]) + std::log(sum);
  }
};

Row compare(std::span<const float> p, std::span<const float> q, TokenId next) {
  const Distribution dp(p), dq(q);
  Row row;
  double difference = 0, mass = 0;
  float second = -std::numeric_limits<float>::infinity();
  for (size_t i = 0; i < p.size(); ++i) {
    difference += static_cast<double>(dp.exps[i]) * (static_cast<double>(p[i]) - static_cast<double>(q[i]));
    mass += static_cast<double>(dp.exps[i]);
    if (i != dp.best) second = std::max(second, p[i]);
  }
  row.kl = difference / mass - dp.log_sum + dq.log_sum;
  row.margin = static_cast<double>(p[dp.best]) - static_cast<double>(second);
  row.agrees = dp.best == dq.best;
  row.followed = next >= 0;
  if (row.followed) {
    row.log_p = static_cast<double>(p[static_cast<size_t>(next)]) - dp.log_sum;
    row.log_q = static_cast<double>(q[static_cast<size_t>(next)]) - dq.log_sum;
  }
  return row;
}

// One step of a sequence; the logits of its rows live until the model's next step.
std::span<const float> step(CpuModel& model, TestSeq& seq) {
  sched::StepPlan plan;
  if (seq.n_computed == 0) model.join(plan, seq);
  seq.plan(plan, kRows, sched::Outputs::all_logits);
  const engine::Ticket ticket = model.launch(plan);
  model.wait(ticket);
  return model.runner().logits(ticket);
}

std::vector<Row> compare_model(const char* path) {
  CpuModel reference(path, {.compute = device::Compute::f32, .max_rows = kRows, .all_logits_rows = kRows});
  CpuModel normal(path, {.max_rows = kRows, .all_logits_rows = kRows});
  const uint32_t vocab = normal.vocab_size();
  std::vector<Row> rows;
  for (const std::vector<TokenId>& ids : sequences(path)) {
    TestSeq a(0, ids, some_blocks(0, 70)), b = a;
    while (a.n_computed < ids.size()) {
      const uint32_t first = a.n_computed;
      const std::span<const float> p = step(reference, a), q = step(normal, b);
      const uint32_t n = a.n_computed - first;
      rows.resize(rows.size() + n);
      Row* out = rows.data() + rows.size() - n;
      tbb::parallel_for(0u, n, [&](uint32_t i) {
        const TokenId next = first + i + 1 < ids.size() ? ids[first + i + 1] : -1;
        out[i] = compare(p.subspan(size_t{i} * vocab, vocab), q.subspan(size_t{i} * vocab, vocab), next);
      });
    }
  }
  return rows;
}

void check_divergence(const char* path) {
  const std::vector<Row> rows = compare_model(path);
  double kl = 0, log_p = 0, log_q = 0;
  size_t agree = 0, sure = 0, flips = 0, followed = 0;
  for (const Row& row : rows) {
    kl += row.kl;
    agree += row.agrees;
    if (row.margin > 0.5) ++sure, flips += !row.agrees;
    if (row.followed) ++followed, log_p += row.log_p, log_q += row.log_q;
  }
  const auto n = static_cast<double>(rows.size());
  const double perplexity_p = std::exp(-log_p / static_cast<double>(followed));
  const double perplexity_q = std::exp(-log_q / static_cast<double>(followed));
  const double ratio = perplexity_q / perplexity_p - 1;
  const double flip_share = static_cast<double>(flips) / static_cast<double>(sure);
  MESSAGE(fmt::format(
      "{}: {} tokens: mean KL {:.6f} nats, top-1 agreement {:.2f} %, perplexity {:.4f} vs {:.4f} ({:+.3f} "
      "%), flips above 0.5 nats {:.3f} % ({} of {})",
      path + std::string_view(path).rfind('/') + 1, rows.size(), kl / n, 100 * static_cast<double>(agree) / n,
      perplexity_q, perplexity_p, 100 * ratio, 100 * flip_share, flips, sure));
  CHECK(rows.size() >= 12000);
  CHECK(kl / n <= 0.002);
  CHECK(static_cast<double>(agree) / n >= 0.96);
  CHECK(std::abs(ratio) <= 0.005);
  CHECK(flip_share <= 0.001);
}

TEST_CASE("SmolLM2: the normal path stays close to compute f32") { check_divergence(kSmolLm); }

TEST_CASE("Gemma 3: the normal path stays close to compute f32") { check_divergence(kGemma); }

}  // namespace
}  // namespace heddle
