#pragma once
// A server on a loop of its own, on a port of its own, with a handler that the test drives. Everything of the loop is
// reached by on_loop(), so that the tests have no races of their own.
#include <doctest/doctest.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <chrono>
#include <functional>
#include <future>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "api/error.h"
#include "api/sse.h"
#include "net/scope.h"
#include "net/server.h"

namespace heddle::net {

// Polls a condition that other threads bring about.
inline bool eventually(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

// One request that the handler holds: the test answers it.
struct Held {
  std::string path;
  std::shared_ptr<api::ResponseSink> sink;
  std::optional<api::Gone> gone;
  int n_gone = 0;
  int n_writable = 0;
};

class TestHandler final : public api::Handler {
 public:
  std::vector<std::shared_ptr<Held>> held;
  int n_admitted = 0, n_handled = 0;

  api::Admission admit(const api::HttpRequest& head) override {
    ++n_admitted;
    api::Admission admission;
    admission.headers.push_back({"X-Admitted", "yes"});
    if (head.path == "/refused") admission.refusal = api::error_reply({401, "no key", {}});
    if (head.path == "/throw-early") throw std::runtime_error("on purpose");
    return admission;
  }

  void handle(api::HttpRequest request, std::shared_ptr<api::ResponseSink> sink) override {
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
        if (const auto held = weak.lock()) {
          held->gone = reason;
          ++held->n_gone;
        }
      });
      entry->sink->on_writable([weak] {
        if (const auto held = weak.lock()) ++held->n_writable;
      });
      held.push_back(std::move(entry));
    }
  }
};

class TestServer {
 public:
  explicit TestServer(ServerOptions options = {}) {
    options.access_log = [this](const api::AccessRecord& record) { log.push_back(record); };
    server = std::make_unique<Server>(loop_, std::move(options), handler);
    const auto listening = server->listen("127.0.0.1", 0);
    REQUIRE(listening.has_value());
    port = server->port();
    thread_ = std::thread([this] { loop_.run(); });
  }
  ~TestServer() {
    if (thread_.joinable()) {
      stop(Monotonic::now());
      join();
    }
  }

  // Runs `f` on the loop and gives its result.
  template <class F>
  auto on_loop(F f) {
    std::packaged_task<decltype(f())()> task(std::move(f));
    auto result = task.get_future();
    asio::post(loop_, std::move(task));
    return result.get();
  }

  // Starts the stop; join() waits for its end.
  void stop(MonotonicTime deadline) {
    on_loop([this, deadline] {
      if (!stopped_) stopping_.spawn(run_stop(this, deadline));
      stopped_ = true;
    });
  }
  void join() {
    work_.reset();
    thread_.join();
    handler.held.clear();
  }

  std::shared_ptr<Held> wait_held(size_t index) {
    REQUIRE(eventually([&] { return on_loop([&] { return handler.held.size() > index; }); }));
    return on_loop([&] { return handler.held[index]; });
  }
  std::optional<api::Gone> wait_gone(const std::shared_ptr<Held>& held) {
    CHECK(eventually([&] { return on_loop([&] { return held->gone.has_value(); }); }));
    return on_loop([&] { return held->gone; });
  }
  ServerCounters counters() {
    return on_loop([this] { return server->counters(); });
  }
  bool wait_open(size_t n) {
    return eventually([&] { return counters().open == n; });
  }

  TestHandler handler;
  std::vector<api::AccessRecord> log;
  std::unique_ptr<Server> server;
  uint16_t port = 0;

 private:
  static Task<> run_stop(TestServer* self, MonotonicTime deadline) { co_await self->server->stop(deadline); }

  asio::io_context loop_{1};
  asio::executor_work_guard<Executor> work_{loop_.get_executor()};
  Scope stopping_{loop_.get_executor(), "test"};
  std::thread thread_;
  bool stopped_ = false;
};

}  // namespace heddle::net
