#pragma once
// A loop without I/O for tests: the thread that calls run_until() is the loop thread.
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "base/loop.h"

class FakeLoop final : public heddle::Loop {
 public:
  void post(std::function<void()> work) override {
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(std::move(work));
    }
    ready_.notify_one();
  }
  bool is_loop_thread() const override { return std::this_thread::get_id() == owner_; }

  // Runs posted work, waiting for more, until `done` holds after one of them.
  void run_until(const std::function<bool()>& done) {
    while (!done()) run_one();
  }
  void run_one() {
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [this] { return !queue_.empty(); });
    const std::function<void()> work = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    work();
  }
  size_t queued() {
    const std::lock_guard lock(mutex_);
    return queue_.size();
  }

 private:
  const std::thread::id owner_ = std::this_thread::get_id();
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<std::function<void()>> queue_;
};
