#pragma once
// What the command line and the configuration file say, as values. Flags of `vllm serve` keep their names and meanings.
// Order of authority: flag, file, default.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "device/device.h"
#include "sched/config.h"

namespace CLI {
class App;
}

namespace heddle::app {

// Options of every command that loads a model.
struct ModelOptions {
  std::string model;  // path of a GGUF file
  std::optional<uint32_t> max_model_len;
  uint32_t max_num_seqs = 128;
  uint32_t max_num_batched_tokens = 2048;
  uint32_t block_size = 16;
  std::optional<uint32_t> num_gpu_blocks_override;
  std::optional<uint64_t> kv_cache_memory_bytes;
  bool enable_prefix_caching = true;
  bool enable_chunked_prefill = true;
  uint32_t long_prefill_token_threshold = 0;
  uint32_t max_long_partial_prefills = 0;  // 0: no cap
  sched::PolicyKind scheduling_policy = sched::PolicyKind::fcfs;
  uint32_t fair_quantum = 32;
  std::map<std::string, uint32_t, std::less<>> tenant_weights;
  double watermark = 0;
  std::optional<uint64_t> prefix_hash_seed;  // absent: random
  uint64_t seed = 0;
  std::string chat_template;  // file or inline text; empty: the model's own
  device::Compute compute = device::Compute::automatic;
  uint32_t threads = 0;             // 0: chosen from the machine
  uint32_t pipeline_depth = 0;      // 0: the measured default
  uint32_t data_parallel_size = 1;  // of `serve`
  log::Level log_level = log::Level::info;
};

struct ServeOptions {
  ModelOptions model;
  std::string host = "127.0.0.1";
  uint16_t port = 8000;
  std::vector<std::string> served_model_name;
  std::vector<std::string> api_key;
  std::vector<std::string> allowed_origins;
  double shutdown_timeout = 0.5;       // seconds that running requests get after a stop signal
  uint32_t max_num_queued_reqs = 0;    // sequences that wait or run; 0: no limit
  uint64_t max_num_queued_tokens = 0;  // prompt tokens without a first token; 0: no limit
  int queue_full_status = 503;         // or 429
  bool data_parallel_lockstep = false;
  uint32_t data_parallel_sync_interval = 16;  // steps
  bool enable_admin_endpoints = false;
  bool dry_run = false;
};

// Declares the options on a subcommand; `options` must outlive its parse.
void add_model_options(CLI::App& command, ModelOptions& options, std::string& config_file);
void add_serve_options(CLI::App& command, ServeOptions& options);

// Fills options that the command line did not set from a TOML file; a key is a long flag name without its dashes.
Result<void> apply_config_file(CLI::App& command, const std::string& path);

// "8k" is 8000, "8K" 8192, "1M" 1048576; nullopt if it is no such number.
std::optional<uint64_t> parse_count(const std::string& text);

}  // namespace heddle::app
