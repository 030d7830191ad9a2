#pragma once
// Long jobs that the loop must not do itself: tokenising a long prompt, reading a file. One thread of low priority;
// jobs run in order and must not touch loop state. Owned by the app; submit() is called on the loop. The destructor
// lets the running job finish and drops the others; no `done` is called after it.
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "base/loop.h"

namespace heddle {

class Offload {
 public:
  explicit Offload(Loop& loop);
  ~Offload();
  Offload(const Offload&) = delete;
  Offload& operator=(const Offload&) = delete;

  // Runs `work` on the offload thread, then `done` on the loop.
  void submit(std::function<void()> work, std::function<void()> done);

 private:
  struct Job {
    std::function<void()> work, done;
  };
  void run();

  Loop& loop_;
  std::shared_ptr<bool> alive_;  // loop thread only: false once the owner is gone
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Job> jobs_;   // guarded by mutex_
  bool stopping_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace heddle
