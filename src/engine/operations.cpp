// An operator's operations: pause, sleep, wake, reset. Each is a coroutine beside the step loop that changes what may
// be planned and waits until the loop has got there; one at a time.
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>

#include "base/log.h"
#include "engine/engine_impl.h"

namespace heddle::engine {

namespace asio = boost::asio;

void Engine::Impl::notify() {
  for (asio::steady_timer* watcher : watchers_) watcher->cancel();
}

asio::awaitable<void> Engine::Impl::until(Condition condition) {
  if ((this->*condition)()) co_return;
  const auto executor = co_await asio::this_coro::executor;
  asio::steady_timer changed(executor, asio::steady_timer::time_point::max());
  watchers_.push_back(&changed);
  while (!(this->*condition)()) co_await changed.async_wait(asio::as_tuple(asio::use_awaitable));
  std::erase(watchers_, &changed);
}

asio::awaitable<void> Engine::Impl::begin_operation() {
  co_await until(&Impl::no_operation);
  operating_ = true;
}

void Engine::Impl::end_operation() {
  operating_ = false;
  notify();
  wake();
}

// Nothing that a plan has ever held is unfinished, sessions between two turns apart.
bool Engine::Impl::nothing_begun() const {
  if (!pipeline_.empty() || scheduler_.n_running() > 0) return false;
  const sched::WaitingQueue& queue = scheduler_.queue();
  for (uint32_t line = 0; line < queue.n_lines(); ++line)
    for (const sched::Sequence& s : queue.ready(line))
      if (s.begun) return false;
  return true;
}

// What an operator wants; it holds as soon as no operation and no missing memory demands more.
void Engine::Impl::set_pause(sched::Pause wanted) {
  wanted_pause_ = wanted;
  scheduler_.set_pause(still_ || !memory_is_here() ? sched::Pause::all : wanted);
}

// Until still_ is taken back. resume() does not end it.
asio::awaitable<void> Engine::Impl::stand_still() {
  still_ = true;
  set_pause(wanted_pause_);
  co_await until(&Impl::nothing_in_flight);
}

asio::awaitable<void> Engine::Impl::pause(PauseMode mode, bool clear_cache) {
  co_await begin_operation();
  set_pause(mode == PauseMode::keep ? sched::Pause::all : sched::Pause::admission);
  if (mode == PauseMode::abort) abort_all();
  wake();
  co_await until(mode == PauseMode::keep ? &Impl::nothing_in_flight_or_resumed : &Impl::nothing_begun_or_resumed);
  if (clear_cache) {
    co_await stand_still();
    scheduler_.preempt_all();
    scheduler_.reset_prefix_cache();
    still_ = false;
    set_pause(wanted_pause_);
  }
  end_operation();
}

void Engine::Impl::resume() {
  if (memory_is_here()) {
    set_pause(sched::Pause::none);
    sleep_level_ = SleepLevel::pause;
    notify();
  } else {
    log::warn("the engine sleeps: it goes on when it is woken up");
  }
  wake();
}

asio::awaitable<Result<void>> Engine::Impl::sleep(SleepLevel level, PauseMode mode) {
  co_await pause(mode, level != SleepLevel::pause);
  co_await begin_operation();
  if (level == SleepLevel::pause && memory_is_here()) sleep_level_ = level;
  if (level != SleepLevel::pause && !weights_away_) {
    co_await stand_still();
    scheduler_.preempt_all();
    scheduler_.reset_prefix_cache();
    scheduler_.forget_slots();
    runner_->sleep(level);
    sleep_level_ = level;
    weights_away_ = kv_away_ = true;
    still_ = false;
    set_pause(sched::Pause::all);
  } else if (weights_away_ && level > sleep_level_) {
    runner_->sleep(level);
    sleep_level_ = level;
  }
  end_operation();
  co_return Result<void>{};
}

asio::awaitable<Result<void>> Engine::Impl::wake_up(WakeTags tags) {
  co_await begin_operation();
  Result<void> woken;
  if (tags.weights && weights_away_) {
    woken = co_await runner_->wake_up();
    if (woken) weights_away_ = false;
  }
  // KV memory comes as it is touched: there is nothing to fetch.
  if (woken && tags.kv_cache) kv_away_ = false;
  if (woken && memory_is_here() && (tags.scheduling || sleep_level_ != SleepLevel::pause)) {
    set_pause(sched::Pause::none);
    sleep_level_ = SleepLevel::pause;
  }
  end_operation();
  co_return woken;
}

asio::awaitable<bool> Engine::Impl::reset_prefix_cache(bool reset_running) {
  co_await begin_operation();
  if (reset_running) {
    co_await stand_still();
    scheduler_.preempt_all();
    still_ = false;
    set_pause(wanted_pause_);
  }
  const bool done = scheduler_.reset_prefix_cache();
  end_operation();
  co_return done;
}

}  // namespace heddle::engine
