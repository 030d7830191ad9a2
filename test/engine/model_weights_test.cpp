// Weights that runners share: given back by the last sleeper, loaded again for the first awake, off the loop.
#include "engine/model_weights.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "runner_fixture.h"

namespace heddle::engine {
namespace {

std::string tiny_llama() { return HEDDLE_SOURCE_DIR "/test/data/model/tiny_llama.gguf"; }

// Weights whose loading the test can hold up, fail and count.
struct SharedWeights {
  boost::asio::io_context io;
  std::unique_ptr<Loop> loop = make_loop(io);
  NaiveDevice device;  // its Linears own their memory, so unload has nothing to do but be counted
  std::mutex mutex;
  std::condition_variable changed;
  bool held = false;       // loading waits while it is
  bool missing = false;    // the file is gone
  uint32_t n_loads = 0;    // guarded by mutex, as those above
  uint32_t n_dropped = 0;  // guarded by mutex
  std::thread::id load_thread;
  uint32_t n_unloads = 0;
  std::shared_ptr<ModelWeights> weights;

  SharedWeights() {
    auto model = read();
    REQUIRE(model.has_value());
    weights = std::make_shared<ModelWeights>(io.get_executor(), *loop, std::move(*model),
                                             WeightSource{.load = [this] { return load(); },
                                                          .unload = [this] { ++n_unloads; },
                                                          .drop_file_cache =
                                                              [this] {
                                                                const std::lock_guard lock(mutex);
                                                                ++n_dropped;
                                                                changed.notify_all();
                                                              }});
  }
  Result<std::unique_ptr<model::Model>> read() {
    const auto files = model::GgufSet::open(tiny_llama());
    if (!files) return tl::unexpected(files.error());
    return model::load_model(*files, *model::read_config(*files), device, 64);
  }
  Result<std::unique_ptr<model::Model>> load() {
    std::unique_lock lock(mutex);
    ++n_loads;
    load_thread = std::this_thread::get_id();
    changed.notify_all();
    changed.wait(lock, [this] { return !held; });
    if (missing) return fail("tiny_llama.gguf: No such file or directory");
    lock.unlock();
    return read();
  }
  void set(bool hold, bool gone = false) {
    const std::lock_guard lock(mutex);
    held = hold;
    missing = gone;
    changed.notify_all();
  }
  void wait_for_load(uint32_t number) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return n_loads == number; });
  }

  struct Woken {
    bool done = false;
    std::string error;
  };
  static boost::asio::awaitable<void> acquire(ModelWeights* shared, Woken* woken) {
    auto result = co_await shared->acquire();
    woken->done = true;
    if (!result) woken->error = result.error().message;
  }
  void start(Woken& woken) { boost::asio::co_spawn(io, acquire(weights.get(), &woken), rethrow); }
  void run_until(const std::function<bool()>& done) {
    io.restart();
    const auto work = boost::asio::make_work_guard(io);
    while (!done()) io.run_one();
  }
};

}  // namespace

TEST_CASE("the last to release gives the weights back, and they are loaded once for all who want them") {
  SharedWeights s;
  for (int i = 0; i < 3; ++i) s.weights->hold();
  s.weights->release();
  s.weights->release();
  CHECK(s.weights->loaded());
  CHECK(s.n_unloads == 0);
  s.weights->release();
  CHECK(!s.weights->loaded());
  CHECK(s.n_unloads == 1);

  s.set(true);
  SharedWeights::Woken a, b, c;
  s.start(a);
  s.start(b);
  s.io.restart();
  s.io.poll();
  s.wait_for_load(1);
  // The loop goes on while the thread loads.
  int turns = 0;
  for (int i = 0; i < 3; ++i) boost::asio::post(s.io, [&turns] { ++turns; });
  s.run_until([&] { return turns == 3; });
  CHECK(!a.done);
  CHECK(!b.done);
  CHECK(s.load_thread != std::this_thread::get_id());
  s.set(false);
  s.run_until([&] { return a.done && b.done; });
  CHECK(a.error.empty());
  CHECK(b.error.empty());
  CHECK(s.n_loads == 1);
  s.start(c);  // they are there
  s.run_until([&] { return c.done; });
  CHECK(s.n_loads == 1);
  CHECK(s.n_unloads == 1);
  s.weights->release();
  s.weights->release();
  CHECK(s.weights->loaded());
  s.weights->release();
  CHECK(!s.weights->loaded());
}

TEST_CASE("a loading that fails tells everyone who waited, leaves nothing behind, and the next one may succeed") {
  SharedWeights s;
  s.weights->hold();
  s.weights->release();
  s.set(true, true);
  SharedWeights::Woken a, b, c;
  s.start(a);
  s.start(b);
  s.io.restart();
  s.io.poll();
  s.set(false, true);
  s.run_until([&] { return a.done && b.done; });
  CHECK(a.error == "tiny_llama.gguf: No such file or directory");
  CHECK(b.error == a.error);
  CHECK(!s.weights->loaded());
  CHECK(s.n_loads == 1);
  CHECK(s.n_unloads == 2);
  s.set(false, false);
  s.start(c);
  s.run_until([&] { return c.done; });
  CHECK(c.error.empty());
  CHECK(s.weights->loaded());
}

TEST_CASE("an owner that ends while its weights load waits for the thread and hears nothing more") {
  auto s = std::make_unique<SharedWeights>();
  s->weights->hold();
  s->weights->release();
  SharedWeights::Woken woken;
  s->start(woken);
  s->io.restart();
  s->io.poll_one();
  s->weights.reset();
  CHECK(!woken.done);
}

TEST_CASE("a sleeping runner forgets KV and slots, and wakes to the same results; a paused one forgets nothing") {
  const auto run = [](RunnerFixture& f, StepPlan& plan) {
    f.join(plan, 0);
    f.add(plan, f.host(0, kPrompt, 0, Outputs::sample));
    return f.wait(f.go(plan))[0];
  };
  RunnerFixture f;
  StepPlan before, paused, after;
  const SeqResult expected = run(f, before);

  f.runner->sleep(SleepLevel::pause);
  CHECK(f.count("release memory") == 0);
  f.add(paused, f.next(0, 6, 1));
  const SeqResult second = f.wait(f.go(paused))[0];

  f.runner->sleep(SleepLevel::weights);
  f.runner->sleep(SleepLevel::discard);  // deeper; what is gone is not given back twice
  CHECK(f.count("release memory") == 1);
  CHECK(!f.weights->loaded());
  CHECK(f.wake().has_value());
  CHECK(f.wake().has_value());  // awake already
  CHECK(f.n_loads == 2);
  CHECK(run(f, after).logits_hash == expected.logits_hash);
  StepPlan decode;
  f.add(decode, f.next(0, 6, 1));
  CHECK(f.wait(f.go(decode))[0].logits_hash == second.logits_hash);
}

}  // namespace heddle::engine
