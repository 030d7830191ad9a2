// `heddle bench serve URL`: what clients of a running server see under load.
#include <fmt/format.h>

#include "app/commands.h"
#include "app/terminal.h"

namespace heddle::app {

int bench_serve_command(BenchServeOptions options) {
  if (Result<void> url = parse_url(options.url, options.load.host, options.load.port); !url)
    return fail_command(url.error().message);
  Result<LoadResult> loaded = [&] {
    ProgressBar bar("requests", options.load.requests);
    return run_load(options.load, [&](uint32_t done) { bar.set(done); });
  }();
  if (!loaded) return fail_command(loaded.error().message);
  const LoadResult& r = *loaded;
  const auto milliseconds = [](const std::vector<double>& times, double share) {
    return 1e3 * percentile(times, share);
  };
  fmt::print("concurrency={} requests={} failed={} seconds={:.2f}\n", options.load.concurrency, r.completed, r.failed,
             r.seconds);
  fmt::print("prompt_tokens={} output_tokens={} output_tok_s={:.1f} total_tok_s={:.1f} req_s={:.2f}\n", r.prompt_tokens,
             r.output_tokens, static_cast<double>(r.output_tokens) / r.seconds,
             static_cast<double>(r.output_tokens + r.prompt_tokens) / r.seconds, r.completed / r.seconds);
  fmt::print("ttft_ms p50={:.1f} p99={:.1f}  itl_ms p50={:.2f} p99={:.2f}  e2e_ms p50={:.1f} p99={:.1f}\n",
             milliseconds(r.ttft, 0.5), milliseconds(r.ttft, 0.99), milliseconds(r.itl, 0.5), milliseconds(r.itl, 0.99),
             milliseconds(r.e2e, 0.5), milliseconds(r.e2e, 0.99));
  fmt::print("client_cpu={:.2f} s, {:.1f} % of one core\n", r.client_cpu_seconds,
             100 * r.client_cpu_seconds / r.seconds);
  if (r.failed > 0) return fail_command(fmt::format("{} requests failed, the first with: {}", r.failed, r.first_error));
  return 0;
}

}  // namespace heddle::app
