#pragma once
// The subcommands of the program. Each returns the exit code: 0, or 1 after one line to stderr that says what was
// wrong.
#include <string>

#include "app/load_client.h"
#include "app/options.h"

namespace heddle::app {

struct RunOptions {
  ModelOptions model;
  std::string prompt;
  uint32_t max_tokens = 512;
  double temperature = 0;
};
// `heddle run MODEL "prompt"`: one answer, streamed to stdout.
int run_command(const RunOptions& options);

// `heddle chat MODEL`: a conversation at the terminal.
int chat_command(const RunOptions& options);

struct GenerateOptions {
  ModelOptions model;
  std::string prompts;  // JSON lines
  std::string output;   // empty: stdout
};
// `heddle generate MODEL --prompts F.jsonl`: outputs in the order of the inputs, then the latency table.
int generate_command(const GenerateOptions& options);

struct BenchOptions {
  ModelOptions model;
  uint32_t prompt_tokens = 512;
  uint32_t decode_prompt_tokens = 128;
  uint32_t decode_tokens = 64;
  std::vector<uint32_t> batches = {1, 4, 8, 16, 32};
  uint32_t repeats = 3;
};
// `heddle bench MODEL`: prefill and batched decode without HTTP.
int bench_command(const BenchOptions& options);

struct BenchServeOptions {
  std::string url;
  LoadOptions load;
};
// `heddle bench serve URL`: a load on a running server.
int bench_serve_command(BenchServeOptions options);

// `heddle serve MODEL`.
int serve_command(const ServeOptions& options);

}  // namespace heddle::app
