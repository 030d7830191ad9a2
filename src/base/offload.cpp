#include "base/offload.h"

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

namespace heddle {
namespace {
constexpr int kNice = 5;  // behind the compute threads, which a long job would otherwise hold up
}

Offload::Offload(Loop& loop) : loop_(loop), alive_(std::make_shared<bool>(true)), thread_([this] { run(); }) {}

Offload::~Offload() {
  *alive_ = false;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void Offload::submit(std::function<void()> work, std::function<void()> done) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back({std::move(work), std::move(done)});
  }
  wake_.notify_one();
}

void Offload::run() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), kNice);
  while (true) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
      if (stopping_) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    job.work();
    loop_.post([alive = alive_, done = std::move(job.done)] {
      if (*alive) done();
    });
  }
}

}  // namespace heddle
