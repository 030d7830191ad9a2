#include "app/decode_loop.h"

#include <fmt/format.h>

#include <boost/asio/co_spawn.hpp>
#include <exception>

#include "api/generation.h"
#include "base/check.h"

namespace heddle::app {
namespace {

// Prompts of different lengths, so that not all sequences fill a block in the same step.
constexpr uint32_t kBlockSize = 16, kShortestPrompt = 17;
constexpr uint32_t prompt_length(uint32_t i) { return kShortestPrompt + i % kBlockSize; }
constexpr uint32_t kLongestPrompt = kShortestPrompt + kBlockSize - 1;

// A client that reads at once and never leaves.
class NullSink final : public api::ResponseSink {
 public:
  explicit NullSink(std::shared_ptr<uint64_t> n_bytes) : n_bytes_(std::move(n_bytes)) {}
  void reply(api::HttpReply reply) override { *n_bytes_ += reply.body.size(); }
  void start_stream(int, std::string_view, api::HeaderList) override {}
  api::Flow write(std::string_view chunk) override {
    *n_bytes_ += chunk.size();
    return api::Flow::open;
  }
  void end() override {}
  bool closed() const override { return false; }
  size_t unsent_bytes() const override { return 0; }
  void on_gone(std::function<void(api::Gone)>) override {}
  void on_writable(std::function<void()>) override {}
  void annotate(std::string_view) override {}

 private:
  std::shared_ptr<uint64_t> n_bytes_;
};

api::GenerationOptions generation_options(uint32_t i) {
  api::GenerationOptions options;
  options.id = fmt::format("chatcmpl-{:032x}", i);
  options.model = "HuggingFaceTB/SmolLM2-135M-Instruct";
  options.fingerprint = "heddle-" HEDDLE_VERSION "-00000000";
  options.created = 1'700'000'000;
  options.stream = true;
  return options;
}

}  // namespace

DecodeLoop::DecodeLoop(const DecodeLoopOptions& options, std::shared_ptr<const text::Tokenizer> tokenizer)
    : engine_(make_engine(options, std::move(tokenizer))),
      exporter_(
          {.model_name = "bench", .block_size = kBlockSize, .n_blocks = engine_->snapshot().blocks_total},
          [this] { return stats::GroupSnapshot{.engines = {engine_->snapshot()}}; },
          [] { return stats::NetSnapshot{}; }) {
  submit(options);
  boost::asio::co_spawn(context_, engine_->run(), [](const std::exception_ptr& error) {
    if (error) std::rethrow_exception(error);
  });
}

std::unique_ptr<engine::Engine> DecodeLoop::make_engine(const DecodeLoopOptions& options,
                                                        std::shared_ptr<const text::Tokenizer> tokenizer) {
  engine::Config config;
  config.pipeline_depth = options.depth;
  sched::Config& scheduler = config.scheduler;
  scheduler.max_num_seqs = options.n_sequences;
  scheduler.max_num_batched_tokens = options.n_sequences * kLongestPrompt;
  scheduler.max_model_len = kLongestPrompt + options.n_steps + options.depth + 1;
  scheduler.block_size = kBlockSize;
  scheduler.n_blocks = options.n_sequences * (scheduler.max_model_len / kBlockSize + 1);
  engine::StubOptions stub;
  stub.max_num_seqs = scheduler.max_num_seqs;
  stub.n_blocks = scheduler.n_blocks;
  stub.block_size = scheduler.block_size;
  stub.pipeline_depth = options.depth;
  stub.vocab_size = tokenizer->vocab_size();
  stub.read_back = false;
  if (options.step_time > Monotonic::duration::zero()) {
    stub.clock = engine::StubOptions::Clock::real;
    stub.step_time = options.step_time;
  }
  auto runner = std::make_unique<engine::StubRunner>(stub);
  stub_ = runner.get();
  auto timer = std::make_unique<StepTimer>(std::move(runner));
  timer_ = timer.get();
  return std::make_unique<engine::Engine>(config, std::move(timer), std::move(tokenizer));
}

void DecodeLoop::submit(const DecodeLoopOptions& options) {
  for (uint32_t i = 0; i < options.n_sequences; ++i) {
    auto generation = std::make_shared<api::Generation>(generation_options(i), std::make_shared<NullSink>(n_bytes_));
    engine::Request request;
    request.id = fmt::format("chatcmpl-{:032x}-0", i);
    for (uint32_t k = 0; k < prompt_length(i); ++k)
      request.prompt.push_back(static_cast<TokenId>((i * 131 + k * 7) % kBlockSize + 256 + i));
    request.sampling.temperature = 0;
    request.sampling.seed = i;
    request.max_tokens = options.n_steps + options.depth;
    request.arrival = Arrival::now();
    auto sink = generation->prompt_sink(0, prompt_length(i));
    const auto submitted = engine_->submit(std::move(request), std::move(sink));
    if (!submitted) check_failed(__FILE__, __LINE__, "a request that is taken", submitted.error().message);
    generation->begin([] {});
  }
}

void DecodeLoop::run_to(uint64_t n_steps) {
  while (times().n_steps < n_steps) context_.run_one();
}

DecodeLoop::~DecodeLoop() {
  engine_->abort_all();
  engine_->stop();
  context_.run();
}

}  // namespace heddle::app
