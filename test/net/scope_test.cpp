#include "net/scope.h"

#include <doctest/doctest.h>

#include <boost/asio/co_spawn.hpp>
#include <stdexcept>

using namespace heddle::net;

namespace {

Task<> count_up(int* n) {
  ++*n;
  co_return;
}

// Waits for ever; says how it was woken, and that clean-up may await nothing yet does run.
Task<> wait_for_ever(Executor executor, ErrorCode* woken_by, bool* cleaned) {
  Timer timer(executor);
  timer.expires_at(Timer::time_point::max());
  auto [error] = co_await timer.async_wait(as_values);
  *woken_by = error;
  *cleaned = true;
}

Task<> fail_at_once() {
  throw std::runtime_error("on purpose");
  co_return;
}

Task<> join_and_note(Scope* scope, size_t* left) {
  co_await scope->join();
  *left = scope->size();
}

// An awaiting task inside an awaiting task: cancellation reaches the innermost operation.
Task<> nest(Executor executor, ErrorCode* woken_by, bool* cleaned) {
  co_await wait_for_ever(executor, woken_by, cleaned);
}

}  // namespace

TEST_CASE("tasks of a scope run from the loop, and the scope is empty when they have ended") {
  asio::io_context loop;
  Scope scope(loop.get_executor(), "test");
  int n = 0;
  for (int i = 0; i < 3; ++i) scope.spawn(count_up(&n));
  CHECK(n == 0);
  CHECK(scope.size() == 3);
  loop.run();
  CHECK(n == 3);
  CHECK(scope.size() == 0);
}

TEST_CASE("cancel wakes what waits with operation_aborted, in a nested task too, and join returns after it") {
  asio::io_context loop;
  Scope scope(loop.get_executor(), "test"), outside(loop.get_executor(), "outside");
  ErrorCode first, second;
  bool first_cleaned = false, second_cleaned = false;
  size_t left = 99;
  scope.spawn(wait_for_ever(loop.get_executor(), &first, &first_cleaned));
  scope.spawn(nest(loop.get_executor(), &second, &second_cleaned));
  loop.poll();
  outside.spawn(join_and_note(&scope, &left));
  loop.poll();
  CHECK(left == 99);
  scope.cancel();
  loop.run();
  CHECK(first == asio::error::operation_aborted);
  CHECK(second == asio::error::operation_aborted);
  CHECK(first_cleaned);
  CHECK(second_cleaned);
  CHECK(left == 0);
}

TEST_CASE("a task cancelled before it ran never runs, nor does one spawned after it") {
  asio::io_context loop;
  Scope scope(loop.get_executor(), "test");
  int n = 0;
  scope.spawn(count_up(&n));
  scope.cancel();
  scope.spawn(count_up(&n));
  loop.run();
  CHECK(n == 0);
  CHECK(scope.size() == 0);
}

TEST_CASE("an exception ends its own task only, and is counted") {
  asio::io_context loop;
  Scope scope(loop.get_executor(), "test");
  int n = 0;
  scope.spawn(fail_at_once());
  scope.spawn(count_up(&n));
  loop.run();
  CHECK(n == 1);
  CHECK(scope.failures() == 1);
  CHECK(scope.size() == 0);
}

TEST_CASE("an empty scope is joined at once") {
  asio::io_context loop;
  Scope scope(loop.get_executor(), "test"), outside(loop.get_executor(), "outside");
  size_t left = 99;
  outside.spawn(join_and_note(&scope, &left));
  loop.run();
  CHECK(left == 0);
}
