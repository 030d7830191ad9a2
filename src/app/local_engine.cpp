#include "app/local_engine.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>

#include "text/chat_prompt.h"

namespace heddle::app {
namespace {

// Every matrix of the layers is multiplied once a token.
uint64_t count_layer_macs(const model::GgufSet& files) {
  uint64_t macs = 0;
  files.each_tensor([&](const model::GgufTensor& tensor) {
    if (tensor.n_dims == 2 && tensor.name.starts_with("blk.")) macs += uint64_t{tensor.rows()} * tensor.cols();
  });
  return macs;
}

}  // namespace

Result<std::unique_ptr<LocalEngine>> LocalEngine::open(const ModelOptions& options) {
  if (options.data_parallel_size != 1) return fail("--data-parallel-size is for `serve`: this command runs one engine");
  std::unique_ptr<LocalEngine> local(new LocalEngine);
  local->context_ = std::make_unique<boost::asio::io_context>(1);
  local->loop_ = make_loop(*local->context_);
  Result<PreparedModel> prepared = prepare_model(options, *local->loop_);
  if (!prepared) return tl::unexpected(prepared.error());
  local->max_model_len_ = prepared->plan.max_model_len;
  local->description_ = prepared->device->describe();
  local->threads_ = prepared->team->n_threads();
  local->isa_ = prepared->isa;
  local->weight_bytes_ = prepared->plan.weights;
  local->layer_macs_ = count_layer_macs(prepared->files);
  local->head_macs_ = uint64_t{prepared->config.vocab_size} * prepared->config.hidden;
  Result<LoadedModel> loaded = load_model(options, *prepared, [](const char*) {});
  if (!loaded) return tl::unexpected(loaded.error());
  local->tokenizer_ = loaded->tokenizer;
  local->template_ = loaded->chat_template;
  local->template_problem_ = loaded->template_problem;
  local->engine_ = make_engine(options, *prepared, *loaded, *local->context_);
  local->team_ = std::move(prepared->team);
  local->scope_ = std::make_unique<net::Scope>(local->context_->get_executor(), "engine");
  local->scope_->spawn(run_engine(local.get()));
  return local;
}

net::Task<> LocalEngine::run_engine(LocalEngine* self) {
  co_await boost::asio::co_spawn(*self->context_, self->engine_->run(), boost::asio::use_awaitable_t<net::Executor>{});
}

LocalEngine::~LocalEngine() {
  if (engine_ == nullptr) return;
  engine_->stop();
  engine_->abort_all();
  run_until([this] { return scope_->size() == 0; });
  engine_.reset();
}

void LocalEngine::run_until(const std::function<bool()>& done) {
  context_->restart();
  while (!done()) context_->run_one();
}

Result<std::vector<TokenId>> LocalEngine::encode_chat(const text::ChatInput& input) const {
  if (template_ == nullptr) return fail(template_problem_);
  auto ids = text::encode_chat(*template_, *tokenizer_, input);
  if (!ids) return fail(ids.error().message);
  return std::move(*ids);
}

engine::Request LocalEngine::make_request(std::string id, std::vector<TokenId> prompt) const {
  engine::Request request;
  request.id = std::move(id);
  request.max_tokens = prompt.size() < max_model_len_ ? max_model_len_ - static_cast<uint32_t>(prompt.size()) : 1;
  request.prompt = std::move(prompt);
  const auto end_tokens = tokenizer_->end_tokens();
  request.sampling.end_tokens.assign(end_tokens.begin(), end_tokens.end());
  request.arrival = Arrival::now();
  return request;
}

}  // namespace heddle::app
