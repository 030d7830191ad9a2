#pragma once
// What a running server is made of, from the first phase of loading to the end of the stop. Loop thread only.
#include <boost/asio/signal_set.hpp>
#include <memory>
#include <string>

#include "api/router.h"
#include "api/service.h"
#include "app/model_host.h"
#include "app/options.h"
#include "base/offload.h"
#include "engine/engine_group.h"
#include "net/scope.h"
#include "net/server.h"
#include "stats/exporter.h"

namespace heddle::app {

struct ServerState {
  ServerState(const ServeOptions& serve_options, boost::asio::io_context& context, Loop& main_loop);

  const ServeOptions& options;
  boost::asio::io_context& context;
  Loop& loop;
  std::vector<std::string> names;  // served model names
  std::string phase = "starting";  // until `service` is set
  MonotonicTime started = Monotonic::now();

  Offload offload;
  std::unique_ptr<engine::EngineGroup> engines;
  std::unique_ptr<api::Service> service;
  std::unique_ptr<stats::Exporter> exporter;
  api::Router router;
  net::Server server;
  net::Scope working;   // the engines' loops, and operations on them
  net::Scope stopping;  // the stop, once it was asked for
  boost::asio::signal_set signals;
  int exit_code = 0;
};

// Everything a client can ask for.
void add_routes(ServerState& state);

}  // namespace heddle::app
