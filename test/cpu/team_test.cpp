#include "cpu/team.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <random>
#include <set>
#include <vector>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "fake_loop.h"

using namespace heddle::cpu;

namespace {

void spin_for(std::chrono::nanoseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) {
  }
}

// What a list of commands did, as its chunks saw it.
struct Trace {
  std::atomic<uint64_t> chunks_done{0};
  std::atomic<uint32_t> out_of_order{0};
  std::atomic<uint32_t> run_twice{0};
};

struct TracedArgs {
  Trace* trace;
  std::atomic<uint8_t>* ran;  // [n_chunks]
  uint64_t before;            // chunks of all earlier commands
  uint32_t n_chunks;
  uint32_t work_ns;
};

void traced_chunk(const TracedArgs& args, uint32_t chunk, Worker&) {
  const uint64_t done = args.trace->chunks_done.load(std::memory_order_acquire);
  if (done < args.before || done >= args.before + args.n_chunks) args.trace->out_of_order.fetch_add(1);
  if (args.ran[chunk].exchange(1) != 0) args.trace->run_twice.fetch_add(1);
  if (args.work_ns > 0) spin_for(std::chrono::nanoseconds(args.work_ns));
  args.trace->chunks_done.fetch_add(1, std::memory_order_acq_rel);
}

struct Arrangement {
  uint32_t helpers;
  bool loop_is_member;
};
const Arrangement kArrangements[] = {{0, true}, {1, true}, {2, true}, {3, true}, {1, false}, {2, false}, {4, false}};

}  // namespace

TEST_CASE("random command lists run completely, each chunk once, in order, under every arrangement of threads") {
  for (const Arrangement& arrangement : kArrangements) {
    const uint32_t seed = 7 + arrangement.helpers;
    CAPTURE(seed);
    CAPTURE(arrangement.helpers);
    CAPTURE(arrangement.loop_is_member);
    std::mt19937 random(seed);
    const auto below = [&random](uint32_t n) { return static_cast<uint32_t>(random() % n); };
    FakeLoop loop;
    Team team(loop, {.helpers = arrangement.helpers, .loop_is_member = arrangement.loop_is_member, .capacity = 64});
    Trace trace;
    std::vector<std::atomic<uint8_t>> ran(1u << 16);
    uint64_t chunks = 0;
    uint32_t steps_launched = 0, steps_done = 0;
    std::vector<uint32_t> order;
    constexpr uint32_t kSteps = 60;
    const auto launch = [&] {
      const uint32_t n_commands = below(40);  // 0 too: a step without work
      for (uint32_t i = 0; i < n_commands; ++i) {
        const uint32_t n = below(4) == 0 ? 1 : 1 + below(12);
        // Now and then longer than helpers spin, so that they go to sleep within a command.
        const uint32_t work = below(50) == 0 ? 120'000 : below(3'000);
        REQUIRE(chunks + n <= ran.size());
        team.append<TracedArgs>(n, {&trace, ran.data() + chunks, chunks, n, work}, traced_chunk);
        chunks += n;
      }
      const uint64_t expected = chunks;
      const uint32_t step = steps_launched++;
      team.on_done([&, expected, step] {
        CHECK(loop.is_loop_thread());
        CHECK(trace.chunks_done.load() >= expected);
        order.push_back(step);
        ++steps_done;
      });
    };
    while (steps_launched < kSteps) {  // two steps in flight
      launch();
      if (below(3) == 0 && steps_launched < kSteps) launch();
      loop.run_until([&] { return steps_done + 1 >= steps_launched; });
      if (below(8) == 0) {
        loop.run_until([&] { return steps_done == steps_launched; });
        spin_for(std::chrono::microseconds(below(200)));
      }
    }
    loop.run_until([&] { return steps_done == kSteps; });
    CHECK(trace.chunks_done.load() == chunks);
    CHECK(trace.out_of_order.load() == 0);
    CHECK(trace.run_twice.load() == 0);
    CHECK(team.idle());
    for (uint32_t i = 0; i < order.size(); ++i) CHECK(order[i] == i);
  }
}

TEST_CASE("a callback is never called inside on_done or publish, and may launch the next step") {
  FakeLoop loop;
  Team team(loop, {.helpers = 1, .loop_is_member = true});
  bool inside = false;
  uint32_t called = 0;
  std::function<void()> again = [&] {
    CHECK_FALSE(inside);
    if (++called == 50) return;
    inside = true;
    team.on_done(again);
    inside = false;
  };
  inside = true;
  team.on_done(again);
  inside = false;
  loop.run_until([&] { return called == 50; });
}

TEST_CASE("the loop gets its turn back while a long list runs") {
  FakeLoop loop;
  Team team(loop, {.helpers = 0, .loop_is_member = true});
  struct Args {};
  bool done = false;
  for (int i = 0; i < 100; ++i)
    team.append<Args>(1, {}, [](const Args&, uint32_t, Worker&) { spin_for(std::chrono::microseconds(50)); });
  team.on_done([&] { done = true; });
  uint32_t turns = 0;
  while (!done) {
    loop.run_one();
    ++turns;
  }
  CHECK(turns >= 10);  // 5 ms of work in slices of 200 us and a chunk
}

TEST_CASE("a helper that sleeps is woken by work, and a loop that has nothing to do posts nothing") {
  FakeLoop loop;
  Team team(loop, {.helpers = 1, .loop_is_member = false});
  for (int round = 0; round < 20; ++round) {
    // Long enough for the helper's spin to end; the test holds whether or not it has.
    std::this_thread::sleep_for(std::chrono::milliseconds(round % 2 == 0 ? 2 : 0));
    bool done = false;
    team.on_done([&] { done = true; });
    loop.run_until([&] { return done; });
  }
  CHECK(loop.queued() == 0);
}

TEST_CASE("a loop that left because a chunk of a helper was long comes back for the next command") {
  FakeLoop loop;
  Team team(loop, {.helpers = 1, .loop_is_member = true});
  struct Args {
    std::atomic<uint32_t>* by_loop;
    uint32_t us;
  };
  std::atomic<uint32_t> by_loop{0};
  const auto chunk = [](const Args& args, uint32_t, Worker& worker) {
    if (worker.index == 0) args.by_loop->fetch_add(1);
    spin_for(std::chrono::microseconds(args.us));
  };
  for (int round = 0; round < 30; ++round) {
    bool done = false;
    team.append<Args>(2, {&by_loop, 20}, chunk);
    team.append<Args>(1, {&by_loop, 600}, chunk);  // the loop or the helper; the other one leaves
    for (int i = 0; i < 8; ++i) team.append<Args>(8, {&by_loop, 20}, chunk);
    team.on_done([&] { done = true; });
    loop.run_until([&] { return done; });
  }
  CHECK(by_loop.load() > 0);
  CHECK(team.idle());
}

TEST_CASE("an append to a full list helps until there is room, even when the loop is no member") {
  for (const bool member : {false, true}) {
    FakeLoop loop;
    Team team(loop, {.helpers = 1, .loop_is_member = member, .capacity = 4});
    struct Args {
      std::atomic<uint32_t>* count;
    };
    std::atomic<uint32_t> count{0};
    for (int i = 0; i < 500; ++i)
      team.append<Args>(3, {&count}, [](const Args& args, uint32_t, Worker&) { args.count->fetch_add(1); });
    bool done = false;
    team.on_done([&] { done = true; });
    loop.run_until([&] { return done; });
    CHECK(count.load() == 1500);
  }
}

TEST_CASE("a team can be stopped with commands still waiting, which then never run") {
  for (int round = 0; round < 20; ++round) {
    FakeLoop loop;
    std::atomic<uint32_t> count{0};
    {
      Team team(loop, {.helpers = 2, .loop_is_member = false});
      struct Args {
        std::atomic<uint32_t>* count;
      };
      for (int i = 0; i < 200; ++i)
        team.append<Args>(4, {&count}, [](const Args& args, uint32_t, Worker&) {
          args.count->fetch_add(1);
          spin_for(std::chrono::microseconds(20));
        });
      team.publish();
    }
    CHECK(count.load() < 800);
  }
}

TEST_CASE("helpers block every signal") {
  FakeLoop loop;
  Team team(loop, {.helpers = 1, .loop_is_member = false});
  struct Args {
    std::atomic<int>* blocked;
  };
  std::atomic<int> blocked{-1};
  team.append<Args>(1, {&blocked}, [](const Args& args, uint32_t, Worker&) {
    sigset_t set;
    pthread_sigmask(SIG_SETMASK, nullptr, &set);
    args.blocked->store(sigismember(&set, SIGTERM) == 1 && sigismember(&set, SIGINT) == 1 ? 1 : 0);
  });
  bool done = false;
  team.on_done([&] { done = true; });
  loop.run_until([&] { return done; });
  CHECK(blocked.load() == 1);
  sigset_t here;
  pthread_sigmask(SIG_SETMASK, nullptr, &here);
  CHECK(sigismember(&here, SIGTERM) == 0);
}

#if defined(__x86_64__)
TEST_CASE("every computing thread has the same floating-point environment, and the loop gets its own back") {
  constexpr uint32_t kFlushDenormals = 0x8040;
  const uint32_t before = _mm_getcsr();
  _mm_setcsr(before | kFlushDenormals);  // helpers inherit it too
  {
    FakeLoop loop;
    Team team(loop, {.helpers = 1, .loop_is_member = true});
    struct Args {
      std::atomic<uint32_t>* wrong;
    };
    std::atomic<uint32_t> wrong{0};
    team.append<Args>(64, {&wrong}, [](const Args& args, uint32_t, Worker&) {
      if ((_mm_getcsr() & ~0x3fu) != 0x1f80) args.wrong->fetch_add(1);
      spin_for(std::chrono::microseconds(10));
    });
    bool done = false;
    team.on_done([&] { done = true; });
    loop.run_until([&] { return done; });
    CHECK(wrong.load() == 0);
    CHECK((_mm_getcsr() & kFlushDenormals) == kFlushDenormals);
  }
  _mm_setcsr(before);
}
#endif

TEST_CASE("each member has scratch of its own, aligned to a cache line") {
  FakeLoop loop;
  Team team(loop, {.helpers = 3, .loop_is_member = true});
  team.reserve_scratch(1000);
  CHECK(team.scratch_bytes() >= 1000);
  struct Args {
    std::atomic<uintptr_t>* at;  // [4]
  };
  std::vector<std::atomic<uintptr_t>> at(4);
  team.append<Args>(200, {at.data()}, [](const Args& args, uint32_t, Worker& worker) {
    args.at[worker.index].store(reinterpret_cast<uintptr_t>(worker.scratch));
    worker.scratch[999] = std::byte{1};
    spin_for(std::chrono::microseconds(5));
  });
  bool done = false;
  team.on_done([&] { done = true; });
  loop.run_until([&] { return done; });
  std::set<uintptr_t> seen;
  for (const auto& address : at) {
    CHECK(address.load() % 64 == 0);
    if (address.load() != 0) CHECK(seen.insert(address.load()).second);
  }
  CHECK_FALSE(seen.empty());
}
