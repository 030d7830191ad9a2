#pragma once
// A server on a loop of its own, on a port of its own, with a handler that the test drives. Everything of the loop is
// reached by on_loop(), so that the tests have no races of their own.
#include <doctest/doctest.h>

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
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

  api::Admission admit(const api::HttpRequest& head) override;
  void handle(api::HttpRequest request, std::shared_ptr<api::ResponseSink> sink) override;
};

class TestServer {
 public:
  // Serves `handler` unless another one is given.
  explicit TestServer(ServerOptions options = {}, api::Handler* other = nullptr);
  ~TestServer();

  // Runs `f` on the loop and gives its result.
  template <class F>
  auto on_loop(F f) {
    auto task = std::make_shared<std::packaged_task<decltype(f())()>>(std::move(f));
    auto result = task->get_future();
    post([task] { (*task)(); });
    return result.get();
  }

  void stop(MonotonicTime deadline);  // starts it
  void join();                        // waits for its end

  std::shared_ptr<Held> wait_held(size_t index);
  std::optional<api::Gone> wait_gone(const std::shared_ptr<Held>& held);
  bool wait_open(size_t n);
  ServerCounters counters();

  TestHandler handler;
  std::vector<api::AccessRecord> log;
  std::unique_ptr<Server> server;
  uint16_t port = 0;

 private:
  struct Loop;

  void post(std::function<void()> f);

  std::unique_ptr<Loop> loop_;
  std::thread thread_;
  bool stopped_ = false;
};

}  // namespace heddle::net
