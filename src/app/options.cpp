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
constexpr const char* kQueueGroup = "Queue";
constexpr const char* kOtherGroup = "Other";

constexpr uint64_t kMaxTenantWeight = 1000;

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

// "NAME=W" into the map; the text of what is wrong, or nothing.
std::string read_weight(const std::string& text, std::map<std::string, uint32_t, std::less<>>& into) {
  const size_t equals = text.rfind('=');  // a tenant's name may have one
  if (equals == std::string::npos || equals == 0) return fmt::format("'{}' is not NAME=WEIGHT, such as key1=4", text);
  const std::optional<uint64_t> weight = parse_count(text.substr(equals + 1));
  if (!weight || *weight < 1 || *weight > kMaxTenantWeight)
    return fmt::format("the weight of '{}' must be a whole number between 1 and {}", text.substr(0, equals),
                       kMaxTenantWeight);
  if (!into.emplace(text.substr(0, equals), static_cast<uint32_t>(*weight)).second)
    return fmt::format("'{}' is given twice", text.substr(0, equals));
  return {};
}

void add_policy_options(CLI::App& command, ModelOptions& options) {
  static const std::map<std::string, sched::PolicyKind> kPolicies = {
      {"fcfs", sched::PolicyKind::fcfs}, {"priority", sched::PolicyKind::priority}, {"fair", sched::PolicyKind::fair}};
  command
      .add_option("--scheduling-policy", options.scheduling_policy,
                  "Who is computed first: fcfs, in order of arrival; priority, the smallest number first; fair, by the "
                  "tenants' shares [default: fcfs]")
      ->transform(CLI::CheckedTransformer(kPolicies).description("fcfs|priority|fair"))
      ->group(kSchedulerGroup);
  command
      .add_option("--fair-quantum", options.fair_quantum,
                  "Tokens that a waiting tenant of weight 1 is owed more with each step, under the fair policy")
      ->transform(count_between(1, 65536))
      ->capture_default_str()
      ->group(kSchedulerGroup);
  command
      .add_option_function<std::vector<std::string>>(
          "--tenant-weight",
          [&options](const std::vector<std::string>& texts) {
            options.tenant_weights.clear();
            for (const std::string& text : texts) {
              if (const std::string wrong = read_weight(text, options.tenant_weights); !wrong.empty())
                throw CLI::ValidationError("--tenant-weight", wrong);
            }
          },
          "NAME=WEIGHT of a tenant whose share is not 1, under the fair policy; may be given more than once. A tenant "
          "is "
          "key1, key2, ... by the order of --api-key, or without keys the request's user")
      ->allow_extra_args(false)
      ->type_name("NAME=WEIGHT")
      ->group(kSchedulerGroup);
  command
      .add_option("--watermark", options.watermark,
                  "Share of the KV blocks that is kept free when a request is admitted beside running ones")
      ->check(CLI::Range(0.0, 0.99))
      ->capture_default_str()
      ->group(kSchedulerGroup);
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
      .add_option("--max-long-partial-prefills", options.max_long_partial_prefills,
                  "Prompts longer than --long-prefill-token-threshold computed side by side; 0: no such limit")
      ->transform(count_between(0, 4096))
      ->capture_default_str()
      ->group(kSchedulerGroup);
  add_policy_options(command, options);
  command
      .add_option("--prefix-hash-seed", options.prefix_hash_seed, "Seed of the prefix cache's hashes [default: random]")
      ->group(kSchedulerGroup);
  command.add_option("--pipeline-depth", options.pipeline_depth, "Steps in flight, 1 to 8; 0: the measured default")
      ->transform(count_between(0, 8))
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
  command
      .add_option("--data-parallel-size", options.model.data_parallel_size,
                  "Engines in this process, each with a KV cache of its own; they share the compute threads")
      ->transform(count_between(1, 16))
      ->capture_default_str()
      ->group(kSchedulerGroup);
  command
      .add_flag("--data-parallel-lockstep", options.data_parallel_lockstep,
                "All engines step while any has work, as models need whose steps have collectives; dense ones do not")
      ->group(kSchedulerGroup);
  command
      .add_option("--data-parallel-sync-interval", options.data_parallel_sync_interval,
                  "Steps between two agreements of engines in lockstep whether any has work")
      ->transform(count_between(1, 4096))
      ->capture_default_str()
      ->group(kSchedulerGroup);
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
  command
      .add_option("--max-num-queued-reqs", options.max_num_queued_reqs,
                  "Sequences that may wait or run (a request of n counts n), over all engines; more are refused; 0: no "
                  "limit")
      ->transform(count_between(0, 1u << 24))
      ->capture_default_str()
      ->group(kQueueGroup);
  command
      .add_option("--max-num-queued-tokens", options.max_num_queued_tokens,
                  "Prompt tokens that may wait for their request's first token, over all engines; 0: no limit")
      ->transform(count_between(0, uint64_t{1} << 40))
      ->capture_default_str()
      ->group(kQueueGroup);
  command
      .add_option("--queue-full-status", options.queue_full_status,
                  "Status of a request refused by one of these limits, 503 or 429")
      ->check(CLI::IsMember({503, 429}))
      ->capture_default_str()
      ->group(kQueueGroup);
  command
      .add_flag("--enable-admin-endpoints", options.enable_admin_endpoints,
                "Serve /pause, /resume, /sleep, /wake_up, /reset_prefix_cache and /abort_requests")
      ->group(kServerGroup);
  command.add_flag("--dry-run", options.dry_run, "Print the memory plan and the configuration, then exit")
      ->group(kServerGroup);
}

}  // namespace heddle::app
