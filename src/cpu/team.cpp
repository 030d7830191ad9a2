#include "cpu/team.h"

#include <fmt/format.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <climits>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "cpu/mxcsr.h"

namespace heddle::cpu {
namespace {

constexpr auto kSlice = std::chrono::microseconds(200);  // of the loop, between two looks at epoll
constexpr auto kSpin = std::chrono::microseconds(50);    // before a thread without work sleeps
constexpr uint32_t kLooksPerClock = 64;                  // a look is a pause instruction and a load
constexpr uint64_t kPublishEvery = 8;                    // commands: helpers begin while the loop still appends
constexpr size_t kDoneKept = 16;

// The word that hands out work.
constexpr uint64_t make_state(uint64_t number, uint32_t n_chunks, uint32_t next) {
  return (number << 32) | (uint64_t{n_chunks} << 16) | next;
}
constexpr uint32_t number_of(uint64_t state) { return static_cast<uint32_t>(state >> 32); }
constexpr uint32_t chunks_of(uint64_t state) { return static_cast<uint32_t>(state >> 16) & 0xffff; }
constexpr uint32_t next_of(uint64_t state) { return static_cast<uint32_t>(state) & 0xffff; }
constexpr bool has_chunk(uint64_t state) { return next_of(state) < chunks_of(state); }

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

void futex_wait(std::atomic<uint32_t>& word, uint32_t expected) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}

void futex_wake(std::atomic<uint32_t>& word, uint32_t n) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_PRIVATE, n, nullptr, nullptr, 0);
}
static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));

// Signals belong to the loop: threads made while this lives inherit an empty set.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

}  // namespace

Team::Team(Loop& loop, TeamOptions options)
    : loop_(loop),
      options_(options),
      commands_(std::make_unique<Command[]>(options.capacity)),
      workers_(options.helpers + 1),
      scratch_(options.helpers + 1),
      state_(make_state(~uint64_t{0}, 0, 0)) {
  HEDDLE_CHECK(std::has_single_bit(options.capacity));
  HEDDLE_CHECK(options.helpers > 0 || options.loop_is_member);
  for (uint32_t i = 0; i < workers_.size(); ++i) workers_[i].index = i;
  const SignalsBlocked blocked;
  for (uint32_t i = 1; i <= options.helpers; ++i) threads_.emplace_back([this, i] { help(i); });
}

Team::~Team() {
  stop_.store(true, std::memory_order_seq_cst);
  wakeups_.fetch_add(1, std::memory_order_seq_cst);
  futex_wake(wakeups_, INT_MAX);
  for (std::thread& thread : threads_) thread.join();
}

void Team::reserve_scratch(size_t bytes) {
  HEDDLE_CHECK(idle());
  if (bytes <= scratch_bytes_) return;
  scratch_bytes_ = (bytes + 63) / 64 * 64;
  for (size_t i = 0; i < workers_.size(); ++i) {
    scratch_[i].reset(static_cast<std::byte*>(::operator new[](scratch_bytes_, std::align_val_t{64})));
    workers_[i].scratch = scratch_[i].get();
  }
}

void Team::help_until(uint64_t n_completed) {
  const CanonicalFloat canonical;
  publish();
  uint64_t claim = 0;
  while (this->n_completed() < n_completed) {
    if (take(claim))
      run(claim, workers_[0], false);
    else
      pause();
  }
}

void Team::finish() { help_until(appended_); }

void* Team::new_command(uint32_t n_chunks, RunChunk run) {
  HEDDLE_CHECK(n_chunks > 0 && n_chunks <= kMaxChunks);
  // A full list: be a member until there is room.
  if (appended_ - n_completed() == options_.capacity) help_until(appended_ + 1 - options_.capacity);
  if (appended_ - published_.load(std::memory_order_relaxed) >= kPublishEvery) publish();
  Command& c = command(appended_++);
  c.run = run;
  c.notify = false;
  c.n_chunks.store(n_chunks, std::memory_order_relaxed);
  c.n_done.store(0, std::memory_order_relaxed);
  return c.args.data();
}

void Team::publish() {
  if (published_.load(std::memory_order_relaxed) == appended_) return;
  // Sequentially consistent on both sides: either this thread sees the last command complete, or its finisher sees what
  // was published here; whoever wins the exchange in start_next() starts it.
  published_.store(appended_, std::memory_order_seq_cst);
  start_next(nullptr);
  if (options_.loop_is_member) post_pump();
}

void Team::on_done(std::function<void()> done) {
  struct Nothing {};
  append<Nothing>(1, Nothing{}, [](const Nothing&, uint32_t, Worker&) {});
  command(appended_ - 1).notify = true;
  done_.push_back({appended_ - 1, std::move(done)});
  publish();
}

bool Team::work_is_there() const { return has_chunk(state_.load(std::memory_order_seq_cst)); }

bool Team::take(uint64_t& claim) {
  uint64_t state = state_.load(std::memory_order_acquire);
  while (has_chunk(state)) {
    if (state_.compare_exchange_weak(state, state + 1, std::memory_order_acq_rel, std::memory_order_acquire)) {
      claim = state;
      return true;
    }
  }
  return false;
}

bool Team::run(uint64_t& claim, Worker& worker, bool keep_going) {
  Command& c = command(number_of(claim));
  const RunChunk run_chunk = c.run;
  const bool notify = c.notify;
  run_chunk(c.args.data(), next_of(claim), worker);
  // After this addition the storage may be used again, unless this was the last chunk.
  if (c.n_done.fetch_add(1, std::memory_order_acq_rel) + 1 != chunks_of(claim)) return false;
  completed_.fetch_add(1, std::memory_order_seq_cst);
  const bool claimed = start_next(keep_going ? &claim : nullptr);
  if (notify) loop_.post([this] { call_done(); });
  return claimed;
}

bool Team::start_next(uint64_t* claim) {
  uint64_t state = state_.load(std::memory_order_seq_cst);
  const uint64_t next = completed_.load(std::memory_order_seq_cst);
  if (published_.load(std::memory_order_seq_cst) == next) return false;
  if (number_of(state) != static_cast<uint32_t>(next - 1) || has_chunk(state)) return false;
  const uint32_t n_chunks = command(next).n_chunks.load(std::memory_order_relaxed);
  const uint32_t first = claim != nullptr ? 1 : 0;
  if (!state_.compare_exchange_strong(state, make_state(next, n_chunks, first), std::memory_order_seq_cst))
    return false;
  if (claim != nullptr) *claim = make_state(next, n_chunks, 0);
  if (n_chunks > first) wake(n_chunks - first);
  return claim != nullptr;
}

void Team::wake(uint32_t n) {
  if (sleepers_.load(std::memory_order_seq_cst) > 0) {
    wakeups_.fetch_add(1, std::memory_order_seq_cst);
    futex_wake(wakeups_, n);
  }
  if (options_.loop_is_member && !pump_posted_.load(std::memory_order_seq_cst)) post_pump();
}

void Team::sleep() {
  const uint32_t seen = wakeups_.load(std::memory_order_seq_cst);
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  if (!work_is_there() && !stop_.load(std::memory_order_seq_cst)) futex_wait(wakeups_, seen);
  sleepers_.fetch_sub(1, std::memory_order_seq_cst);
}

void Team::help(uint32_t index) {
  pthread_setname_np(pthread_self(), fmt::format("heddle-cpu-{}", index).c_str());
  const CanonicalFloat canonical;
  Worker& worker = workers_[index];
  uint64_t claim = 0;
  while (!stop_.load(std::memory_order_relaxed)) {
    const MonotonicTime idle_since = Monotonic::now();
    uint32_t looks = 0;
    while (!take(claim)) {
      if (++looks % kLooksPerClock == 0) {
        if (stop_.load(std::memory_order_relaxed)) return;
        if (Monotonic::now() - idle_since > kSpin) sleep();
      }
      pause();
    }
    while (run(claim, worker, !stop_.load(std::memory_order_relaxed))) {
    }
  }
}

void Team::post_pump() {
  if (!pump_posted_.exchange(true, std::memory_order_seq_cst)) loop_.post([this] { pump(); });
}

void Team::pump() {
  const CanonicalFloat canonical;
  const MonotonicTime begin = Monotonic::now();
  MonotonicTime idle_since = begin;
  uint64_t claim = 0;
  uint32_t looks = 0;
  while (appended_ != n_completed()) {
    if (take(claim)) {
      MonotonicTime now = begin;
      while (run(claim, workers_[0], (now = Monotonic::now()) - begin < kSlice)) {
      }
      if (now - begin >= kSlice) return loop_.post([this] { pump(); });
      idle_since = now;
    } else if (++looks % kLooksPerClock == 0) {
      const MonotonicTime now = Monotonic::now();
      if (now - idle_since > kSpin) break;
      if (now - begin > kSlice) return loop_.post([this] { pump(); });
    }
    pause();
  }
  // Nothing to take: whoever starts a command from here on posts the pump again. The second look closes the gap between
  // the first and the flag.
  pump_posted_.store(false, std::memory_order_seq_cst);
  if (work_is_there()) post_pump();
}

void Team::call_done() {
  while (done_first_ < done_.size() && done_[done_first_].command < n_completed()) {
    const std::function<void()> call = std::move(done_[done_first_].call);
    if (++done_first_ == done_.size() || done_first_ == kDoneKept) {
      done_.erase(done_.begin(), done_.begin() + static_cast<std::ptrdiff_t>(done_first_));
      done_first_ = 0;
    }
    call();
  }
}

}  // namespace heddle::cpu
