// `heddle bench MODEL`: the engine without HTTP. Random token ids, no prefix cache, no early end; each figure is the
// best of the repeats, beside what the machine could do at its measured peak.
#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "app/commands.h"
#include "app/terminal.h"
#include "cpu/machine_speed.h"

namespace heddle::app {
namespace {

// Counts tokens; remembers when the first and the last came.
struct Counter final : engine::OutputSink {
  uint32_t n_tokens = 0;
  MonotonicTime first{}, last{};
  bool ended = false;
  void on_delta(const engine::Delta& delta) override {
    if (delta.tokens.empty()) return;
    last = Monotonic::now();
    if (n_tokens == 0) first = last;
    n_tokens += static_cast<uint32_t>(delta.tokens.size());
  }
  void on_end(const engine::Usage&, const engine::Times&) override { ended = true; }
};

struct Timing {
  double prefill_seconds = 0;  // submission to the last first token
  double decode_seconds = 0;   // from there to the last token
};

class Bench {
 public:
  Bench(LocalEngine& local, uint64_t seed) : local_(local), random_(seed) {}

  // `batch` sequences at once, each with its own random prompt.
  Result<Timing> run(uint32_t batch, uint32_t n_prompt, uint32_t n_new) {
    std::vector<std::shared_ptr<Counter>> counters;
    const MonotonicTime start = Monotonic::now();
    for (uint32_t i = 0; i < batch; ++i) {
      engine::Request request = local_.make_request(fmt::format("bench-{}", number_++), random_prompt(n_prompt));
      request.stop.ignore_eos = true;
      request.sampling.end_tokens.clear();
      request.sampling.temperature = 0;
      request.max_tokens = n_new;
      auto counter = std::make_shared<Counter>();
      Result<void, engine::Refusal> submitted = local_.engine().submit(std::move(request), counter);
      if (!submitted) return fail(submitted.error().message);
      counters.push_back(std::move(counter));
    }
    local_.run_until(
        [&] { return std::all_of(counters.begin(), counters.end(), [](const auto& c) { return c->ended; }); });
    MonotonicTime all_started{};
    MonotonicTime end{};
    for (const auto& counter : counters) {
      if (counter->n_tokens != n_new)
        return fail(fmt::format("a sequence ended after {} of {} tokens", counter->n_tokens, n_new));
      all_started = std::max(all_started, counter->first);
      end = std::max(end, counter->last);
    }
    return Timing{seconds(all_started - start), seconds(end - all_started)};
  }

 private:
  std::vector<TokenId> random_prompt(uint32_t n) {
    std::vector<TokenId> ids(n);
    std::uniform_int_distribution<TokenId> any(0, local_.tokenizer().vocab_size() - 1);
    for (TokenId& id : ids) id = any(random_);
    return ids;
  }

  LocalEngine& local_;
  std::mt19937_64 random_;
  uint64_t number_ = 0;
};

}  // namespace

int bench_command(const BenchOptions& options) {
  Result<std::unique_ptr<LocalEngine>> local = LocalEngine::open(options.model);
  if (!local) return fail_command(local.error().message);
  fmt::print("{}\n", (*local)->describe());
  const cpu::MachineSpeed speed = cpu::measure_machine_speed((*local)->threads(), (*local)->isa());
  fmt::print("measured peak: {:.0f} G int8 MAC/s, read bandwidth {:.1f} GB/s, on {} threads\n", speed.int8_gmacs,
             speed.read_gbs, (*local)->threads());
  const double weights = static_cast<double>((*local)->weight_bytes());
  const double macs = static_cast<double>((*local)->macs_per_token());
  const double prompt_macs = static_cast<double>((*local)->macs_per_prompt_token());

  Bench bench(**local, options.model.seed + 1);
  const uint64_t n_runs = (options.batches.size() + 1) * options.repeats + 1;
  uint64_t n_done = 0;
  ProgressBar bar("measuring", n_runs);
  std::vector<std::string> lines;
  const auto measure = [&](uint32_t batch, uint32_t n_prompt, uint32_t n_new) -> Result<Timing> {
    Timing best{1e9, 1e9};
    for (uint32_t i = 0; i < options.repeats; ++i) {
      Result<Timing> timing = bench.run(batch, n_prompt, n_new);
      if (!timing) return timing;
      best.prefill_seconds = std::min(best.prefill_seconds, timing->prefill_seconds);
      best.decode_seconds = std::min(best.decode_seconds, timing->decode_seconds);
      bar.set(++n_done);
    }
    return best;
  };
  if (Result<Timing> warm = bench.run(1, std::min(options.prompt_tokens, 64u), 2); !warm)
    return fail_command(warm.error().message);
  bar.set(++n_done);
  Result<Timing> prefill = measure(1, options.prompt_tokens, 1);
  if (!prefill) return fail_command(prefill.error().message);
  const double prefill_rate = options.prompt_tokens / prefill->prefill_seconds;
  lines.push_back(fmt::format("prefill tokens={} tok_s={:.1f} peak_share={:.1f}%", options.prompt_tokens, prefill_rate,
                              100 * prefill_rate * prompt_macs / (speed.int8_gmacs * 1e9)));
  for (uint32_t batch : options.batches) {
    Result<Timing> timing = measure(batch, options.decode_prompt_tokens, options.decode_tokens);
    if (!timing) return fail_command(timing.error().message);
    const double steps = (options.decode_tokens - 1) / timing->decode_seconds;
    lines.push_back(fmt::format("decode batch={} tok_s={:.1f} peak_share={:.1f}% bandwidth_share={:.1f}%", batch,
                                steps * batch, 100 * steps * batch * macs / (speed.int8_gmacs * 1e9),
                                100 * steps * weights / (speed.read_gbs * 1e9)));
  }
  for (const std::string& line : lines) fmt::print("{}\n", line);
  return 0;
}

}  // namespace heddle::app
