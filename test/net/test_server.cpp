#include "test_server.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <stdexcept>
#include <utility>

namespace heddle::net {

api::Admission TestHandler::admit(const api::HttpRequest& head) {
  ++n_admitted;
  api::Admission admission;
  admission.headers.push_back({"X-Admitted", "yes"});
  if (head.path == "/refused") admission.refusal = api::error_reply({401, "no key", {}});
  if (head.path == "/throw-early") throw std::runtime_error("on purpose");
  return admission;
}

void TestHandler::handle(api::HttpRequest request, std::shared_ptr<api::ResponseSink> sink) {
  ++n_handled;
  if (request.path == "/hello") {
    sink->reply({200, "text/plain", "hello", {}});
  } else if (request.path == "/echo") {
    sink->reply({200, "text/plain", request.body, {}});
  } else if (request.path == "/large") {
    sink->reply({200, "text/plain", std::string(8'000'000, 'x'), {}});
  } else if (request.path == "/events") {
    sink->start_stream(200, api::sse_content_type);
    sink->write("data: 1\n\n");
    sink->write("data: 2\n\n");
    sink->end();
  } else if (request.path == "/nothing") {
    sink->reply({204, "", "", {}});
  } else if (request.path == "/throw") {
    throw std::runtime_error("on purpose");
  } else if (request.path != "/drop") {
    auto entry = std::make_shared<Held>();
    entry->path = request.path;
    entry->sink = std::move(sink);
    std::weak_ptr<Held> weak = entry;
    entry->sink->on_gone([weak](api::Gone reason) {
      if (const auto held_entry = weak.lock()) {
        held_entry->gone = reason;
        ++held_entry->n_gone;
      }
    });
    entry->sink->on_writable([weak] {
      if (const auto held_entry = weak.lock()) ++held_entry->n_writable;
    });
    held.push_back(std::move(entry));
  }
}

struct TestServer::Loop {
  asio::io_context io{1};
  asio::executor_work_guard<Executor> work{io.get_executor()};
  Scope stopping{io.get_executor(), "test"};
};

static Task<> run_stop(Server* server, MonotonicTime deadline) { co_await server->stop(deadline); }

TestServer::TestServer(ServerOptions options, api::Handler* other) : loop_(std::make_unique<Loop>()) {
  options.access_log = [this](const api::AccessRecord& record) { log.push_back(record); };
  server = std::make_unique<Server>(loop_->io, std::move(options), other != nullptr ? *other : handler);
  const auto listening = server->listen("127.0.0.1", 0);
  REQUIRE(listening.has_value());
  port = server->port();
  thread_ = std::thread([this] { loop_->io.run(); });
}

TestServer::~TestServer() {
  if (thread_.joinable()) {
    stop(Monotonic::now());
    join();
  }
  server.reset();
}

void TestServer::post(std::function<void()> f) { asio::post(loop_->io, std::move(f)); }

void TestServer::stop(MonotonicTime deadline) {
  on_loop([this, deadline] {
    if (!std::exchange(stopped_, true)) loop_->stopping.spawn(run_stop(server.get(), deadline));
  });
}

void TestServer::join() {
  loop_->work.reset();
  thread_.join();
  handler.held.clear();
}

std::shared_ptr<Held> TestServer::wait_held(size_t index) {
  REQUIRE(eventually([&] { return on_loop([&] { return handler.held.size() > index; }); }));
  return on_loop([&] { return handler.held[index]; });
}

std::optional<api::Gone> TestServer::wait_gone(const std::shared_ptr<Held>& held) {
  CHECK(eventually([&] { return on_loop([&] { return held->gone.has_value(); }); }));
  return on_loop([&] { return held->gone; });
}

bool TestServer::wait_open(size_t n) {
  return eventually([&] { return counters().open == n; });
}

ServerCounters TestServer::counters() {
  return on_loop([this] { return server->counters(); });
}

}  // namespace heddle::net
