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

struct BenchLoopOptions {
  std::vector<uint32_t> running = {256, 1024};  // numbers of sequences that decode
  uint32_t warmup = 200, steps = 2000, repeats = 5;
  uint32_t depth = 0;    // of the pipeline; 0: 2, and with a device time one line for each of 1, 2 and 3
  double device_ms = 0;  // a step of the device on the real clock: prints the share of the time that it is busy
};
// `heddle bench loop`: what the host does in a step, without a device.
int bench_loop_command(const BenchLoopOptions& options);

struct BenchStreamOptions {
  ModelOptions model;        // without a file: the stub runner
  uint32_t connections = 0;  // 0: 64, with a model 16
  uint32_t max_tokens = 0;   // of each answer; 0: 3000, with a model 128
  uint32_t rounds = 5;
};
// `heddle bench stream [MODEL]`: events over real sockets to a client process. Forks: the program has no threads yet.
int bench_stream_command(const BenchStreamOptions& options);

// `heddle serve MODEL`.
int serve_command(const ServeOptions& options);

}  // namespace heddle::app
