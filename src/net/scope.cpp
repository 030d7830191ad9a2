#include "net/scope.h"

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/this_coro.hpp>
#include <exception>
#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace heddle::net {

struct Scope::State {
  State(Executor ex, std::string n) : executor(ex), name(std::move(n)), emptied(ex) {}

  Executor executor;
  std::string name;
  std::list<asio::cancellation_signal> running;  // one signal a task
  Timer emptied;                                 // a condition: never expires, cancelled when `running` becomes empty
  uint64_t failures = 0;
  bool cancelled = false;
};

namespace {

std::string describe(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "unknown exception";
  }
}

}  // namespace

// The outermost frame of each task: co_spawn listens to terminal cancellation only and would throw at the next
// co_await.
static Task<> run_guarded(const bool* cancelled, Task<> task) {
  co_await asio::this_coro::reset_cancellation_state(asio::enable_total_cancellation());
  co_await asio::this_coro::throw_if_cancelled(false);
  if (*cancelled) co_return;
  co_await std::move(task);
}

Scope::Scope(Executor executor, std::string name) : state_(std::make_shared<State>(executor, std::move(name))) {}

Scope::~Scope() {
  if (!state_->running.empty()) {
    check_failed(__FILE__, __LINE__, "scope is empty",
                 fmt::format("scope '{}' dies with {} tasks in it", state_->name, state_->running.size()));
  }
}

void Scope::spawn(Task<> task) {
  if (state_->cancelled) return;
  auto place = state_->running.emplace(state_->running.end());
  auto on_end = [state = state_, place](std::exception_ptr error) {
    if (error) {
      ++state->failures;
      log::error("a task of scope '{}' failed: {}", state->name, describe(error));
    }
    state->running.erase(place);
    if (state->running.empty()) state->emptied.cancel();
  };
  asio::co_spawn(state_->executor, run_guarded(&state_->cancelled, std::move(task)),
                 asio::bind_cancellation_slot(place->slot(), std::move(on_end)));
}

void Scope::cancel() {
  state_->cancelled = true;
  // An emission may end a task at once only by way of the loop, so the list does not change under this walk.
  for (auto& signal : state_->running) signal.emit(asio::cancellation_type::all);
}

Task<> Scope::join() {
  std::shared_ptr<State> state = state_;
  while (!state->running.empty()) {
    state->emptied.expires_at(Timer::time_point::max());
    auto [error] = co_await state->emptied.async_wait(as_values);
    (void)error;  // always operation_aborted: the loop's condition decides
  }
}

size_t Scope::size() const { return state_->running.size(); }
uint64_t Scope::failures() const { return state_->failures; }

}  // namespace heddle::net
