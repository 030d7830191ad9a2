#pragma once
// The worker team: threads of our own and one command list, the CPU's in-order queue. One team a process, shared by all
// engines. A command is a grid of chunks; commands run strictly one after another, the chunks of one on whichever
// threads are there. It is complete when its chunks are done, not when threads have arrived: a thread may join or leave
// between any two chunks.
//
// All work is handed out by one atomic word (command number, chunks, next chunk): taking a chunk is one
// compare-exchange, and a late thread can never take a chunk of a command whose storage was used again. Whoever
// finishes the last chunk starts the next command. Helpers spin for a short while, then sleep on a futex. Where cores
// are few the loop is a part-time member: pump() runs chunks for at most 200 us, posts itself again and so returns to
// epoll; when there is nothing to take it stops, and whoever starts a command posts it again.
//
// append, publish and on_done: loop thread (or, before a loop runs, the one thread that stands for it). Commands trust
// their arguments and cannot fail. Arguments are copied into recycled storage: no allocation per command.
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <thread>
#include <type_traits>
#include <vector>

#include "base/loop.h"

namespace heddle::cpu {

// What a computing thread owns.
struct Worker {
  uint32_t index = 0;            // 0: the loop
  std::byte* scratch = nullptr;  // Team::scratch_bytes() bytes, 64-byte aligned
};

struct TeamOptions {
  uint32_t helpers = 0;
  bool loop_is_member = true;  // must hold if helpers is 0
  uint32_t capacity = 2048;    // commands in the list, a power of two; a full list makes append() wait (and help)
};

class Team {
 public:
  static constexpr size_t kArgsBytes = 208;
  static constexpr uint32_t kMaxChunks = 0xffff;

  Team(Loop& loop, TeamOptions options);
  // Commands that have not run are dropped, and callbacks not called. On the loop thread, after which the loop runs no
  // more posted work, or once idle() and a turn of the loop later.
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  // Appends a command: `run(args, chunk, worker)` for every chunk in [0, n_chunks), 1 ... kMaxChunks of them. It may
  // begin at once, and does so at the latest with the next publish().
  template <class Args>
  void append(uint32_t n_chunks, const Args& args, void (*run)(const Args&, uint32_t, Worker&)) {
    static_assert(std::is_trivially_copyable_v<Args> && sizeof(Args) + sizeof(run) <= kArgsBytes);
    struct Bound {
      void (*run)(const Args&, uint32_t, Worker&);
      Args args;
    };
    ::new (new_command(n_chunks, [](const void* at, uint32_t chunk, Worker& worker) {
      const Bound& bound = *static_cast<const Bound*>(at);
      bound.run(bound.args, chunk, worker);
    })) Bound{run, args};
  }

  // Hands everything appended so far to the members.
  void publish();
  // Publishes, and calls `done` from a turn of the loop once everything appended so far has run.
  void on_done(std::function<void()> done);

  // Publishes, and computes on this thread too until everything appended so far has run. Callbacks are posted, not
  // called.
  void finish();

  // How many commands were ever appended, and how many have run. Storage used by command n is free when n <
  // n_completed().
  uint64_t n_appended() const { return appended_; }
  uint64_t n_completed() const { return completed_.load(std::memory_order_acquire); }
  bool idle() const { return appended_ == n_completed(); }

  uint32_t n_threads() const { return options_.helpers + (options_.loop_is_member ? 1 : 0); }
  // Gives every member at least `bytes` of scratch. Only while idle.
  void reserve_scratch(size_t bytes);
  size_t scratch_bytes() const { return scratch_bytes_; }

 private:
  using RunChunk = void (*)(const void* args, uint32_t chunk, Worker&);
  struct alignas(64) Command {
    RunChunk run = nullptr;
    std::atomic<uint32_t> n_chunks{0};  // atomic: a late starter may look at storage that is being used again
    bool notify = false;                // on_done's marker
    std::atomic<uint32_t> n_done{0};
    alignas(16) std::array<std::byte, kArgsBytes> args;
  };
  struct Done {
    uint64_t command = 0;
    std::function<void()> call;
  };
  struct AlignedDelete {
    void operator()(std::byte* p) const { ::operator delete[](p, std::align_val_t{64}); }
  };

  void help_until(uint64_t n_completed);
  void* new_command(uint32_t n_chunks, RunChunk run);
  Command& command(uint64_t number) { return commands_[number & (options_.capacity - 1)]; }

  bool take(uint64_t& claim);
  bool work_is_there() const;
  // Runs the claimed chunk; true if `claim` now holds a chunk of the next command (asked for by keep_going).
  bool run(uint64_t& claim, Worker& worker, bool keep_going);
  // Starts the next command if the last one is complete and another was published; true if it claimed a chunk.
  bool start_next(uint64_t* claim);

  void help(uint32_t index);
  void sleep();
  void wake(uint32_t n);
  void post_pump();
  void pump();
  void call_done();

  Loop& loop_;
  const TeamOptions options_;
  std::unique_ptr<Command[]> commands_;
  std::vector<Worker> workers_;  // [1 + helpers]
  std::vector<std::unique_ptr<std::byte, AlignedDelete>> scratch_;
  size_t scratch_bytes_ = 0;
  std::vector<std::thread> threads_;

  uint64_t appended_ = 0;   // loop
  std::vector<Done> done_;  // loop; ascending, from done_first_ on
  size_t done_first_ = 0;

  alignas(64) std::atomic<uint64_t> state_;  // command number mod 2^32 | chunks | next chunk
  alignas(64) std::atomic<uint64_t> completed_{0};
  alignas(64) std::atomic<uint64_t> published_{0};
  alignas(64) std::atomic<uint32_t> sleepers_{0};
  std::atomic<uint32_t> wakeups_{0};  // the futex word
  std::atomic<bool> pump_posted_{false};
  std::atomic<bool> stop_{false};
};

}  // namespace heddle::cpu
