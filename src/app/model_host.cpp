#include "app/model_host.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <fstream>
#include <iterator>
#include <random>
#include <thread>

#include "engine/device_runner.h"
#include "engine/model_weights.h"
#include "text/gguf_vocab.h"

namespace heddle::app {
namespace {

// Which depth measures best on the CPU: docs/benchmarks.md.
constexpr uint32_t kDefaultDepth = 1;

// --chat-template: the name of a file, or the template itself.
Result<std::string> template_source(const ModelOptions& options, const model::GgufSet& files) {
  if (options.chat_template.empty()) {
    const auto own = files.metadata().get_string("tokenizer.chat_template");
    return own ? std::string(*own) : std::string();
  }
  if (options.chat_template.find('{') != std::string::npos) return options.chat_template;
  std::ifstream file(options.chat_template, std::ios::binary);
  if (!file)
    return fail(fmt::format("--chat-template {}: there is no such file, and it is no template text either",
                            options.chat_template));
  return std::string(std::istreambuf_iterator<char>(file), {});
}

Result<void> load_template(const ModelOptions& options, const model::GgufSet& files, LoadedModel& loaded) {
  Result<std::string> source = template_source(options, files);
  if (!source) return tl::unexpected(source.error());
  if (source->empty()) {
    loaded.template_problem =
        "this model has no chat template: use /v1/completions, or start the server with --chat-template";
    return {};
  }
  const text::Vocab& vocab = loaded.tokenizer->vocab();
  Result<text::ChatTemplate> parsed =
      text::ChatTemplate::parse(*source, vocab.token_bytes(vocab.bos()), vocab.token_bytes(vocab.eos()));
  if (!parsed) {
    // A template that the user gave must work; one that came with the file only takes the chat route away.
    if (!options.chat_template.empty()) return fail(fmt::format("--chat-template: {}", parsed.error().message));
    loaded.template_problem = fmt::format("the model's chat template cannot be used: {}", parsed.error().message);
    return {};
  }
  loaded.chat_template = std::make_shared<const text::ChatTemplate>(std::move(*parsed));
  return {};
}

// How the weights go and come back while the runners sleep. The files are opened anew: a mapping kept meanwhile would
// hold the old bytes, or none, if somebody wrote to them.
engine::WeightSource weight_source(const PreparedModel& prepared, const std::shared_ptr<cpu::CpuDevice>& device) {
  struct Files {
    std::string path;
    std::vector<std::string> parts;
    model::ModelConfig config;
    uint64_t tensor_bytes;
    uint32_t n_positions;
  };
  const auto known = std::make_shared<Files>(
      Files{prepared.files.path(), {}, prepared.config, prepared.files.tensor_bytes(), prepared.plan.max_model_len});
  for (const model::GgufFile& part : prepared.files.parts()) known->parts.push_back(part.path());
  engine::WeightSource source;
  source.load = [known, device]() -> Result<std::unique_ptr<model::Model>> {
    const Result<model::GgufSet> files = model::GgufSet::open(known->path);
    if (!files) return tl::unexpected(files.error());
    const Result<model::ModelConfig> config = model::read_config(*files);
    if (!config) return tl::unexpected(config.error());
    if (*config != known->config || files->tensor_bytes() != known->tensor_bytes)
      return fail(fmt::format("{}: the file holds another model than the one that was served", known->path));
    return model::load_model(*files, *config, *device, known->n_positions);
  };
  source.unload = [device] { device->unload(); };
  source.drop_file_cache = [known] {
    for (const std::string& part : known->parts) drop_file_cache(part);
  };
  return source;
}

}  // namespace

Result<PreparedModel> prepare_model(const ModelOptions& options, Loop& loop) {
  if (options.model.empty()) return fail("no model was given: name a GGUF file");
  Result<model::GgufSet> files = model::GgufSet::open(options.model);
  if (!files) return tl::unexpected(files.error());
  Result<model::ModelConfig> config = model::read_config(*files);
  if (!config) return tl::unexpected(config.error());
  const Result<cpu::Isa> isa = cpu::choose_isa();
  if (!isa) return tl::unexpected(isa.error());
  const cpu::ThreadPlan threads = cpu::plan_threads(cpu::read_cpu_limits(cpu::affinity_cpus()), options.threads);
  auto team = std::make_unique<cpu::Team>(
      loop, cpu::TeamOptions{.helpers = threads.helpers(), .loop_is_member = threads.loop_is_member});
  auto device = std::make_shared<cpu::CpuDevice>(
      *team, cpu::CpuOptions{.isa = *isa, .compute = options.compute, .threads_why = threads.why});

  const uint32_t depth = options.pipeline_depth > 0 ? options.pipeline_depth : kDefaultDepth;
  const model::MemoryNeed need = model::memory_need(*files, *config, *device, options.compute,
                                                    options.max_num_batched_tokens, options.max_num_seqs);
  MemoryRequest request;
  request.weights = need.weights;
  request.kv_per_token = need.kv_per_token;
  request.activations = need.activations;
  request.n_engines = options.data_parallel_size;
  request.model_context = config->context_length;
  request.max_model_len = options.max_model_len;
  request.max_num_seqs = options.max_num_seqs;
  request.block_size = options.block_size;
  request.kv_cache_memory_bytes = options.kv_cache_memory_bytes;
  request.num_blocks = options.num_gpu_blocks_override;
  Result<MemoryPlan> plan = plan_memory(request, read_memory_limit());
  if (!plan) return tl::unexpected(plan.error());
  PreparedModel prepared{
      std::move(*files), std::move(*config), std::move(team), std::move(device), &loop, *isa, std::move(*plan), depth};
  if (Result<void> valid = sched::validate(engine_config(options, prepared).scheduler); !valid)
    return tl::unexpected(valid.error());
  return prepared;
}

Result<LoadedModel> load_model(const ModelOptions& options, PreparedModel& prepared,
                               const std::function<void(const char*)>& phase) {
  LoadedModel loaded;
  // The tokenizer's tables are built while the weights are packed.
  Result<std::unique_ptr<const text::Tokenizer>> tokenizer = fail("");
  std::thread text_loader([&] {
    const Result<text::VocabData> vocab = text::read_vocab(prepared.files.metadata());
    tokenizer = vocab ? text::make_tokenizer(*vocab) : tl::unexpected(vocab.error());
  });
  phase("loading weights");
  auto model = model::load_model(prepared.files, prepared.config, *prepared.device, prepared.plan.max_model_len);
  phase("loading tokenizer");
  text_loader.join();
  if (!model) return tl::unexpected(model.error());
  if (!tokenizer) return tl::unexpected(tokenizer.error());
  loaded.model = std::move(*model);
  loaded.tokenizer = std::move(*tokenizer);
  if (Result<void> parsed = load_template(options, prepared.files, loaded); !parsed)
    return tl::unexpected(parsed.error());
  return loaded;
}

std::vector<std::unique_ptr<engine::ModelRunner>> make_runners(const ModelOptions& options, PreparedModel& prepared,
                                                               LoadedModel& loaded, boost::asio::io_context& context,
                                                               uint32_t n) {
  const std::shared_ptr<cpu::CpuDevice> device = std::move(prepared.device);
  const auto weights = std::make_shared<engine::ModelWeights>(context.get_executor(), *prepared.loop,
                                                              std::move(loaded.model), weight_source(prepared, device));
  engine::DeviceRunnerOptions runner;
  runner.max_num_seqs = options.max_num_seqs;
  runner.max_num_batched_tokens = options.max_num_batched_tokens;
  runner.n_blocks = prepared.plan.n_blocks;
  runner.block_size = prepared.plan.block_size;
  runner.pipeline_depth = prepared.pipeline_depth;
  std::vector<std::unique_ptr<engine::ModelRunner>> runners;
  for (uint32_t i = 0; i < n; ++i)
    runners.push_back(
        std::make_unique<engine::DeviceRunner>(context.get_executor(), device->sibling(), weights, runner));
  return runners;
}

engine::Config engine_config(const ModelOptions& options, const PreparedModel& prepared) {
  engine::Config config;
  config.pipeline_depth = prepared.pipeline_depth;
  sched::Config& scheduler = config.scheduler;
  scheduler.max_num_seqs = options.max_num_seqs;
  scheduler.max_num_batched_tokens = options.max_num_batched_tokens;
  scheduler.max_model_len = prepared.plan.max_model_len;
  scheduler.block_size = prepared.plan.block_size;
  scheduler.n_blocks = prepared.plan.n_blocks;
  scheduler.long_prefill_token_threshold = options.long_prefill_token_threshold;
  scheduler.max_long_partial_prefills = options.max_long_partial_prefills;
  scheduler.policy = options.scheduling_policy;
  scheduler.fair_quantum = options.fair_quantum;
  scheduler.tenant_weights = options.tenant_weights;
  scheduler.watermark = options.watermark;
  scheduler.enable_prefix_caching = options.enable_prefix_caching;
  scheduler.enable_chunked_prefill = options.enable_chunked_prefill;
  scheduler.prefix_hash_seed = options.prefix_hash_seed
                                   ? *options.prefix_hash_seed
                                   : (uint64_t{std::random_device{}()} << 32) ^ std::random_device{}();
  return config;
}

std::unique_ptr<engine::Engine> make_engine(const ModelOptions& options, PreparedModel& prepared, LoadedModel& loaded,
                                            boost::asio::io_context& context) {
  auto runners = make_runners(options, prepared, loaded, context, 1);
  return std::make_unique<engine::Engine>(engine_config(options, prepared), std::move(runners.front()),
                                          loaded.tokenizer);
}

}  // namespace heddle::app
