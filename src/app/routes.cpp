// The table of routes: which endpoint answers which path, before and after the model is there.
#include <fmt/format.h>

#include "api/error.h"
#include "api/json_text.h"
#include "app/admin_routes.h"
#include "app/server_state.h"

namespace heddle::app {
namespace {

using api::HttpReply;
using api::HttpRequest;
using api::Sink;

// Work is pending and no step has ended for so long: something hangs, and a balancer should look elsewhere.
constexpr double kStalledSeconds = 30;

HttpReply not_ready(const ServerState& state) {
  HttpReply reply = api::error_reply({503, fmt::format("the model is not ready: {}", state.phase), ""});
  reply.headers.push_back({"Retry-After", "1"});
  return reply;
}

HttpReply health(const ServerState& state) {
  if (state.service == nullptr) {
    std::string body = "{\"status\":\"loading\",\"phase\":";
    api::append_json_string(body, state.phase);
    return {503, "application/json", body + "}", {{"Retry-After", "1"}}};
  }
  if (!state.engines->healthy())
    return {503, "application/json", "{\"status\":\"failed\",\"phase\":\"device fault\"}", {}};
  for (uint32_t rank = 0; rank < state.engines->n_engines(); ++rank) {
    const engine::Engine& one = state.engines->engine(rank);
    if (one.snapshot().in_flight > 0 && seconds(Monotonic::now() - one.last_step()) > kStalledSeconds)
      return {503, "application/json", "{\"status\":\"stalled\",\"phase\":\"no step has ended for 30 s\"}", {}};
  }
  return {200, "", "", {}};  // paused and asleep too: what comes is queued
}

}  // namespace

void add_routes(ServerState& state) {
  const auto when_ready = [&state](auto endpoint) {
    return [&state, endpoint](HttpRequest request, Sink sink) {
      if (state.service == nullptr) return sink->reply(not_ready(state));
      ((*state.service).*endpoint)(std::move(request), std::move(sink));
    };
  };
  const auto answer = [&state](HttpReply (*make)(const ServerState&)) {
    return [&state, make](const HttpRequest&, const Sink& sink) { sink->reply(make(state)); };
  };
  api::Router& router = state.router;
  router.add("POST", "/v1/chat/completions", when_ready(&api::Service::chat_completions));
  router.add("POST", "/v1/completions", when_ready(&api::Service::completions));
  router.add("GET", "/v1/models", when_ready(&api::Service::models));
  router.add("POST", "/tokenize", when_ready(&api::Service::tokenize));
  router.add("POST", "/detokenize", when_ready(&api::Service::detokenize));
  router.add("GET", "/health", answer(health));
  router.add("GET", "/ping", answer(health));
  router.add("POST", "/ping", answer(health));
  router.add("GET", "/version", answer([](const ServerState&) {
               return HttpReply{200, "application/json", "{\"version\":\"" HEDDLE_VERSION "\"}", {}};
             }));
  router.add("GET", "/metrics", answer([](const ServerState& s) {
               return HttpReply{200, "text/plain; version=0.0.4; charset=utf-8", s.exporter->text(), {}};
             }));
  if (state.options.enable_admin_endpoints) add_admin_routes(state);
}

}  // namespace heddle::app
