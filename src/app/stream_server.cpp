#include "app/stream_server.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/read.hpp>
#include <chrono>

#include "app/bench_vocab.h"
#include "engine/stub_runner.h"

namespace heddle::app {
namespace asio = boost::asio;
namespace {

constexpr uint32_t kBlockSize = 16, kStubDepth = 2;

}  // namespace

StreamServer::StreamServer()
    : loop_(make_loop(context_)), offload_(*loop_), scope_(context_.get_executor(), "bench"), router_({}) {}

Result<std::unique_ptr<StreamServer>> StreamServer::over_stub(uint32_t n_sequences, uint32_t n_tokens) {
  std::unique_ptr<StreamServer> self(new StreamServer);
  std::shared_ptr<const text::Tokenizer> tokenizer = make_bench_tokenizer();
  engine::Config config;
  config.pipeline_depth = kStubDepth;
  sched::Config& scheduler = config.scheduler;
  scheduler.max_num_seqs = n_sequences;
  scheduler.max_num_batched_tokens = std::max(2048u, n_sequences);
  scheduler.max_model_len = n_tokens + 1;
  scheduler.block_size = kBlockSize;
  scheduler.n_blocks = n_sequences * (scheduler.max_model_len / kBlockSize + 1);
  engine::StubOptions stub;
  stub.max_num_seqs = n_sequences;
  stub.n_blocks = scheduler.n_blocks;
  stub.block_size = kBlockSize;
  stub.pipeline_depth = kStubDepth;
  stub.vocab_size = tokenizer->vocab_size();
  stub.read_back = false;
  auto engine = std::make_unique<engine::Engine>(config, std::make_unique<engine::StubRunner>(stub), tokenizer);
  if (Result<void> opened = self->open(std::move(engine), std::move(tokenizer), scheduler.max_model_len); !opened)
    return tl::unexpected(opened.error());
  return self;
}

Result<std::unique_ptr<StreamServer>> StreamServer::over_model(const ModelOptions& options) {
  std::unique_ptr<StreamServer> self(new StreamServer);
  Result<PreparedModel> prepared = prepare_model(options, *self->loop_);
  if (!prepared) return tl::unexpected(prepared.error());
  Result<LoadedModel> loaded = load_model(options, *prepared, [](const char*) {});
  if (!loaded) return tl::unexpected(loaded.error());
  const uint32_t max_model_len = prepared->plan.max_model_len;
  auto engine = make_engine(options, *prepared, *loaded, self->context_);
  self->team_ = std::move(prepared->team);
  if (Result<void> opened = self->open(std::move(engine), loaded->tokenizer, max_model_len); !opened)
    return tl::unexpected(opened.error());
  return self;
}

Result<void> StreamServer::open(std::unique_ptr<engine::Engine> engine,
                                std::shared_ptr<const text::Tokenizer> tokenizer, uint32_t max_model_len) {
  std::vector<std::unique_ptr<engine::Engine>> engines;
  engines.push_back(std::move(engine));
  engines_ = std::make_unique<engine::EngineGroup>(std::move(engines), engine::GroupOptions{});
  api::ServiceConfig config;
  config.served_names = {"bench"};
  config.root = "bench";
  config.fingerprint = "heddle-" HEDDLE_VERSION "-00000000";
  config.max_model_len = max_model_len;
  service_ = std::make_unique<api::Service>(config, std::move(tokenizer), nullptr, "no chat here", *engines_, offload_);
  router_.add("POST", "/v1/completions", [this](api::HttpRequest request, api::Sink sink) {
    service_->completions(std::move(request), std::move(sink));
  });
  server_ = std::make_unique<net::Server>(context_, net::ServerOptions{}, router_);
  scope_.spawn(run_engines(this));
  return server_->listen("127.0.0.1", 0);
}

net::Task<> StreamServer::run_engines(StreamServer* self) {
  co_await asio::co_spawn(self->context_, self->engines_->run(), asio::use_awaitable_t<net::Executor>{});
}

net::Task<> StreamServer::stop(StreamServer* self) {
  self->engines_->stop();
  self->engines_->abort_all();
  co_await self->server_->stop(Monotonic::now() + std::chrono::seconds(1));
}

StreamServer::~StreamServer() {
  if (server_ == nullptr) return;
  scope_.spawn(stop(this));
  context_.restart();
  context_.run();
}

Result<ClientReport> StreamServer::run(StreamClient& client, ClientOrder order) {
  order.port = server_->port();
  if (Result<void> sent = client.send(order); !sent) return tl::unexpected(sent.error());
  ClientReport report;
  bool done = false;
  net::ErrorCode error;
  asio::posix::stream_descriptor control(context_, client.descriptor());
  asio::async_read(control, asio::buffer(&report, sizeof report), [&](const net::ErrorCode& e, size_t) {
    error = e;
    done = true;
  });
  context_.restart();
  while (!done) context_.run_one();
  control.release();
  if (error) return fail("the client process has ended");
  return checked(report);
}

}  // namespace heddle::app
