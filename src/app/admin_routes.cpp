#include "app/admin_routes.h"

#include <fmt/format.h>

#include <boost/asio/co_spawn.hpp>

#include "api/admin_request.h"
#include "api/json_text.h"

namespace heddle::app {
namespace asio = boost::asio;
namespace {

using api::HttpReply;
using api::HttpRequest;
using api::Sink;

HttpReply json_reply(std::string body) { return {200, "application/json", std::move(body), {}}; }

// vLLM's admin endpoints have a shorter error than its API.
HttpReply problem(int status, std::string_view text) {
  std::string body = "{\"error\":";
  api::append_json_string(body, text);
  return {status, "application/json", body + "}", {}};
}

std::string_view truth(bool value) { return value ? "true" : "false"; }

// An operation's executor is of another type than that of the scope's tasks.
constexpr asio::use_awaitable_t<net::Executor> kWaited;

net::Task<> pause(ServerState* state, Sink sink, api::PauseRequest request) {
  auto operation = state->engines->pause(request.mode, request.clear_cache);
  co_await asio::co_spawn(state->context, std::move(operation), kWaited);
  sink->reply(json_reply("{\"status\":\"paused\"}"));
}

net::Task<> sleep(ServerState* state, Sink sink, api::SleepRequest request) {
  auto operation = state->engines->sleep(request.level, request.mode);
  const Result<void> slept = co_await asio::co_spawn(state->context, std::move(operation), kWaited);
  if (!slept) co_return sink->reply(problem(500, slept.error().message));
  sink->reply(json_reply(
      fmt::format("{{\"status\":\"sleeping\",\"level\":{}}}", static_cast<int>(state->engines->sleep_level()))));
}

net::Task<> wake_up(ServerState* state, Sink sink, api::WakeRequest request) {
  auto operation = state->engines->wake_up(request.tags);
  const Result<void> woken = co_await asio::co_spawn(state->context, std::move(operation), kWaited);
  if (!woken) co_return sink->reply(problem(500, woken.error().message));
  std::string body = fmt::format("{{\"status\":\"{}\",\"tags\":", state->engines->is_sleeping() ? "sleeping" : "awake");
  if (request.named.empty()) {
    body += "null";
  } else {
    for (size_t i = 0; i < request.named.size(); ++i) {
      body += i == 0 ? '[' : ',';
      api::append_json_string(body, request.named[i]);
    }
    body += ']';
  }
  sink->reply(json_reply(body + "}"));
}

net::Task<> reset_prefix_cache(ServerState* state, Sink sink, bool reset_running) {
  auto operation = state->engines->reset_prefix_cache(reset_running);
  const bool done = co_await asio::co_spawn(state->context, std::move(operation), kWaited);
  sink->reply(json_reply(fmt::format("{{\"success\":{}}}", truth(done))));
}

void resume(ServerState& state, const Sink& sink) {
  const engine::SleepLevel level = state.engines->sleep_level();
  if (level != engine::SleepLevel::pause)
    return sink->reply(problem(
        400, fmt::format("the server sleeps at level {}: POST /wake_up brings it back", static_cast<int>(level))));
  state.engines->resume();
  sink->reply(json_reply("{\"status\":\"resumed\"}"));
}

}  // namespace

void add_admin_routes(ServerState& state) {
  // Reads the request with `read`, and gives what it asks to `act`.
  const auto add = [&state](const char* method, const char* path, auto read, auto act) {
    state.router.add(method, path, [&state, read, act](const HttpRequest& request, const Sink& sink) {
      if (state.engines == nullptr) return sink->reply(problem(503, "the model is not ready: " + state.phase));
      auto asked = read(request);
      if (!asked) return sink->reply(problem(400, asked.error().message));
      act(sink, asked);
    });
  };
  const auto of_query = [](auto read) { return [read](const HttpRequest& request) { return read(request.query); }; };
  add("POST", "/pause", of_query(api::read_pause), [&state](const Sink& sink, const Result<api::PauseRequest>& asked) {
    state.working.spawn(pause(&state, sink, *asked));
  });
  add("POST", "/resume", of_query(api::read_nothing),
      [&state](const Sink& sink, const Result<void>&) { resume(state, sink); });
  add("GET", "/is_paused", of_query(api::read_nothing), [&state](const Sink& sink, const Result<void>&) {
    sink->reply(json_reply(fmt::format("{{\"is_paused\":{}}}", truth(state.engines->is_paused()))));
  });
  add("POST", "/sleep", of_query(api::read_sleep), [&state](const Sink& sink, const Result<api::SleepRequest>& asked) {
    state.working.spawn(sleep(&state, sink, *asked));
  });
  add("POST", "/wake_up", of_query(api::read_wake_up),
      [&state](const Sink& sink, const Result<api::WakeRequest>& asked) {
        state.working.spawn(wake_up(&state, sink, *asked));
      });
  add("GET", "/is_sleeping", of_query(api::read_nothing), [&state](const Sink& sink, const Result<void>&) {
    sink->reply(json_reply(fmt::format("{{\"is_sleeping\":{}}}", truth(state.engines->is_sleeping()))));
  });
  add("POST", "/reset_prefix_cache", of_query(api::read_reset_prefix_cache),
      [&state](const Sink& sink, const Result<bool>& asked) {
        state.working.spawn(reset_prefix_cache(&state, sink, *asked));
      });
  add("POST", "/abort_requests", api::read_abort_requests,
      [&state](const Sink& sink, const Result<std::vector<std::string>>& asked) {
        const uint32_t n = state.service->abort_requests(*asked);
        sink->reply(json_reply(fmt::format("{{\"status\":\"aborted\",\"aborted\":{}}}", n)));
      });
}

}  // namespace heddle::app
