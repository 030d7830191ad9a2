#include "app/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <map>

namespace heddle::app {
namespace {

constexpr const char* kModelGroup = "Model";
constexpr const char* kSchedulerGroup = "Scheduler and KV cache";
constexpr const char* kComputeGroup = "Compute";
constexpr const char* kServerGroup = "Server";
constexpr const char* kOtherGroup = "Other";

// A number that may carry a suffix, in a range; the text stays CLI11's, so that defaults print as numbers.
CLI::Validator count_between(uint64_t low, uint64_t high) {
  return CLI::Validator(
      [low, high](std::string& text) -> std::string {
        const std::optional<uint64_t> count = parse_count(text);
        if (!count) return fmt::format("'{}' is not a whole number (8192, 8K, 1M)", text);
        if (*count < low || *count > high) return fmt::format("{} is not between {} and {}", *count, low, high);
        text = std::to_string(*count);
        return {};
      },
      "N");
}

}  // namespace

std::optional<uint64_t> parse_count(const std::string& text) {
  uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc{}) return std::nullopt;
  if (rest == end) return number;
  if (rest + 1 != end) return std::nullopt;
  static const std::map<char, uint64_t> kFactors = {{'k', 1000},     {'K', 1024},       {'m', 1000000},
                                                    {'M', 1u << 20}, {'g', 1000000000}, {'G', 1u << 30}};
  const auto factor = kFactors.find(*rest);
  if (factor == kFactors.end() || number > UINT64_MAX / factor->second) return std::nullopt;
  return number * factor->second;
}

void add_model_options(CLI::App& command, ModelOptions& options, std::string& config_file) {
  command.add_option("model,--model", options.model, "Path of the model, a GGUF file (or the first of a split one)")
      ->group(kModelGroup);
  command
      .add_option("--max-model-len", options.max_model_len,
                  "Longest prompt plus output, in tokens; accepts 8K [default: the model's]")
      ->transform(count_between(1, 1u << 24))
      ->group(kModelGroup);
  command
      .add_option("--chat-template", options.chat_template,
                  "Jinja template for chat, a file or its text [default: the model's own]")
      ->group(kModelGroup);
  command.add_option("--seed", options.seed, "Seed of requests that bring none")
      ->capture_default_str()
      ->group(kModelGroup);

  command.add_option("--max-num-seqs", options.max_num_seqs, "Sequences that run at the same time")
      ->transform(count_between(1, 4096))
      ->capture_default_str()
      ->group(kSchedulerGroup);
  command
      .add_option("--max-num-batched-tokens", options.max_num_batched_tokens,
                  "Tokens computed in one step, prompts and outputs together")
      ->transform(count_between(1, 65536))
      ->capture_default_str()
      ->group(kSchedulerGroup);
  command.add_option("--block-size", options.block_size, "Tokens in a KV block; a multiple of 16")
      ->transform(count_between(16, 256))
      ->capture_default_str()
      ->group(kSchedulerGroup);
  command
      .add_option("--num-gpu-blocks-override", options.num_gpu_blocks_override,
                  "KV blocks, whatever the memory plan says")
      ->transform(count_between(1, 1u << 30))
      ->group(kSchedulerGroup);
  command
      .add_option("--kv-cache-memory-bytes", options.kv_cache_memory_bytes,
                  "Memory of the KV cache, in bytes; accepts 2G "
                  "[default: the smaller of half the available memory and max-num-seqs x max-model-len]")
      ->transform(count_between(1, uint64_t{1} << 50))
      ->group(kSchedulerGroup);
  command
      .add_flag("--enable-prefix-caching,!--no-enable-prefix-caching", options.enable_prefix_caching,
                "Reuse the KV of equal prefixes [default: on]")
      ->group(kSchedulerGroup);
  command
      .add_flag("--enable-chunked-prefill,!--no-enable-chunked-prefill", options.enable_chunked_prefill,
                "Compute long prompts in pieces beside running outputs [default: on]")
      ->group(kSchedulerGroup);
  command
      .add_option("--long-prefill-token-threshold", options.long_prefill_token_threshold,
                  "Most prompt tokens of one request in a step; 0: no such limit")
      ->transform(count_between(0, 1u << 24))
      ->capture_default_str()
      ->group(kSchedulerGroup);
  command
      .add_option("--prefix-hash-seed", options.prefix_hash_seed, "Seed of the prefix cache's hashes [default: random]")
      ->group(kSchedulerGroup);
  command.add_option("--pipeline-depth", options.pipeline_depth, "Steps in flight, 1 or 2; 0: the measured default")
      ->transform(count_between(0, 2))
      ->capture_default_str()
      ->group(kSchedulerGroup);

  static const std::map<std::string, device::Compute> kCompute = {{"auto", device::Compute::automatic},
                                                                  {"f32", device::Compute::f32}};
  command
      .add_option("--compute", options.compute,
                  "auto: on the quantised weights; f32: on dequantised weights, the reference [default: auto]")
      ->transform(CLI::CheckedTransformer(kCompute).description("auto|f32"))
      ->group(kComputeGroup);
  command.add_option("--threads", options.threads, "Compute threads; 0: what affinity and CPU quota allow")
      ->transform(count_between(0, 1024))
      ->capture_default_str()
      ->group(kComputeGroup);

  command
      .add_option_function<std::string>(
          "--log-level",
          [&options](const std::string& text) {
            if (!log::parse_level(text, options.log_level))
              throw CLI::ValidationError("--log-level",
                                         fmt::format("'{}' is not one of debug, info, warning, error, off", text));
          },
          "debug, info, warning, error or off")
      ->default_str("info")
      ->group(kOtherGroup);
  command.add_option("--config", config_file, "TOML file with more of these options; flags win")->group(kOtherGroup);
}

void add_serve_options(CLI::App& command, ServeOptions& options) {
  command.add_option("--host", options.host, "Address to listen on; 0.0.0.0 for all")
      ->capture_default_str()
      ->group(kServerGroup);
  command.add_option("--port", options.port, "Port to listen on; 0: any free one, printed")
      ->transform(count_between(0, 65535))
      ->capture_default_str()
      ->group(kServerGroup);
  command
      .add_option("--served-model-name", options.served_model_name,
                  "Name that requests may use; may be given more than once, the first is the one in replies "
                  "[default: the path as given]")
      ->allow_extra_args(false)
      ->group(kServerGroup);
  command
      .add_option("--api-key", options.api_key,
                  "Key that clients must send as a bearer token; may be given more than once")
      ->allow_extra_args(false)
      ->envname("HEDDLE_API_KEY")
      ->group(kServerGroup);
  command
      .add_option("--allowed-origins", options.allowed_origins,
                  "Origin that browsers may call from, or *; may be given more than once")
      ->allow_extra_args(false)
      ->group(kServerGroup);
  command
      .add_option("--shutdown-timeout", options.shutdown_timeout,
                  "Seconds that running requests get to end after a stop signal")
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str()
      ->group(kServerGroup);
  command.add_flag("--dry-run", options.dry_run, "Print the memory plan and the configuration, then exit")
      ->group(kServerGroup);
}

}  // namespace heddle::app
