#pragma once
// The whole server in this process, as `heddle serve` wires it, for `heddle bench stream`: over the stub runner (what
// the host and the sockets can do) or over a real model. Runs on the calling thread, inside run() only.
#include <boost/asio/io_context.hpp>
#include <memory>

#include "api/router.h"
#include "api/service.h"
#include "app/model_host.h"
#include "app/stream_client.h"
#include "base/offload.h"
#include "net/scope.h"
#include "net/server.h"

namespace heddle::app {

class StreamServer {
 public:
  // Up to n_sequences at once, each of n_tokens at most, prompt included.
  static Result<std::unique_ptr<StreamServer>> over_stub(uint32_t n_sequences, uint32_t n_tokens);
  static Result<std::unique_ptr<StreamServer>> over_model(const ModelOptions& options);
  ~StreamServer();  // stops in order
  StreamServer(const StreamServer&) = delete;
  StreamServer& operator=(const StreamServer&) = delete;

  // Serves until the client has done the order, whose port is filled in here.
  Result<ClientReport> run(StreamClient& client, ClientOrder order);

  net::ServerCounters counters() const { return server_->counters(); }
  uint64_t n_generated() const { return engines_->engine(0).snapshot().generation_tokens; }

 private:
  StreamServer();
  Result<void> open(std::unique_ptr<engine::Engine> engine, std::shared_ptr<const text::Tokenizer> tokenizer,
                    uint32_t max_model_len);
  static net::Task<> run_engines(StreamServer* self);
  static net::Task<> stop(StreamServer* self);

  boost::asio::io_context context_{1};
  std::unique_ptr<Loop> loop_;
  std::unique_ptr<cpu::Team> team_;  // of a model's device; outlives the engines
  Offload offload_;
  net::Scope scope_;
  std::unique_ptr<engine::EngineGroup> engines_;
  std::unique_ptr<api::Service> service_;
  api::Router router_;
  std::unique_ptr<net::Server> server_;
};

}  // namespace heddle::app
