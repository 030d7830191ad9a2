// Sleeping and waking with a real model: the memory really goes, and everything computed afterwards is what it was.
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "reference/cpu_model.h"

using namespace heddle;

namespace {

size_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  size_t size = 0, resident = 0;
  statm >> size >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

// A name of the model that can be taken away.
class Alias {
 public:
  Alias() : path_(std::filesystem::temp_directory_path() / ("heddle_sleep_" + std::to_string(getpid()) + ".gguf")) {
    remove();
    restore();
  }
  ~Alias() { remove(); }
  std::string path() const { return path_.string(); }
  void remove() const { std::filesystem::remove(path_); }
  void restore() const { std::filesystem::create_symlink(kSmolLm, path_); }

 private:
  std::filesystem::path path_;
};

const std::vector<TokenId> kPrompt = {1, 4093, 198, 1780, 418, 253, 5356, 5646, 11173, 3365, 3511, 308};

// Hashes of a prompt and 12 decoded tokens.
std::vector<uint64_t> generate(CpuModel& model, uint32_t runner) {
  TestSeq seq(0, kPrompt, some_blocks(3, 2), {.temperature = 1.0f, .seed = 9});
  for (int i = 0; i < 13; ++i) {
    sched::StepPlan plan;
    if (i == 0) model.join(plan, seq, runner);
    seq.plan(plan, 64);
    seq.take(model.wait(model.launch(plan, runner), runner)[0]);
  }
  return seq.hashes;
}

}  // namespace

TEST_CASE("two runners that sleep give the weights back, and wake to the same bits from the same file") {
  const Alias file;
  CpuModel model(file.path(), {.hash_logits = true}, 2);
  const std::vector<uint64_t> expected = generate(model, 0);
  CHECK(generate(model, 1) == expected);
  const size_t weights = model.weight_bytes();
  REQUIRE(weights > size_t{50} << 20);

  // The first to sleep leaves the weights to the other.
  model.sleep(engine::SleepLevel::weights, 0);
  CHECK(model.weights().loaded());
  CHECK(generate(model, 1) == expected);
  const size_t awake = resident_bytes();
  model.sleep(engine::SleepLevel::discard, 1);
  const size_t asleep = resident_bytes();
  CHECK(!model.weights().loaded());
  CHECK(model.weight_bytes() == 0);
  CHECK(awake - asleep > weights / 2);
  MESSAGE("resident: ", awake >> 20, " MiB awake, ", asleep >> 20, " MiB asleep; weights ", weights >> 20, " MiB");

  file.remove();
  const Result<void> failed = model.wake(0);
  REQUIRE(!failed.has_value());
  CHECK(failed.error().message.find(file.path()) != std::string::npos);
  CHECK(model.weight_bytes() == 0);

  file.restore();
  CHECK(model.wake(1).has_value());
  CHECK(model.weight_bytes() == weights);
  CHECK(generate(model, 1) == expected);
  CHECK(model.wake(0).has_value());
  CHECK(generate(model, 0) == expected);
  CHECK(model.weight_bytes() == weights);
}

TEST_CASE("a paused runner keeps what it has: the sequence goes on where it was") {
  CpuModel model(kSmolLm, {.hash_logits = true});
  const std::vector<uint64_t> expected = generate(model, 0);
  TestSeq seq(0, kPrompt, some_blocks(3, 2), {.temperature = 1.0f, .seed = 9});
  for (int i = 0; i < 13; ++i) {
    sched::StepPlan plan;
    if (i == 0) model.join(plan, seq);
    seq.plan(plan, 64);
    seq.take(model.run(plan)[0]);
    if (i == 5) {
      model.sleep(engine::SleepLevel::pause);
      CHECK(model.weights().loaded());
      CHECK(model.wake().has_value());
    }
  }
  CHECK(seq.hashes == expected);
}

TEST_CASE("the loop turns while the weights are read again") {
  CpuModel model(kSmolLm, {.hash_logits = true});
  model.sleep(engine::SleepLevel::weights);
  MonotonicTime last = Monotonic::now();
  Monotonic::duration longest{};
  uint64_t turns = 0;
  bool stop = false;
  std::function<void()> turn = [&] {
    const MonotonicTime now = Monotonic::now();
    longest = std::max(longest, now - last);
    last = now;
    ++turns;
    if (!stop) boost::asio::post(model.io(), turn);
  };
  boost::asio::post(model.io(), turn);
  CHECK(model.wake().has_value());
  stop = true;
  // Reading takes hundreds of milliseconds; a loop that did it would have turned a handful of times.
  CHECK(turns > 100);
  MESSAGE(turns, " turns, the longest ", std::chrono::duration<double, std::milli>(longest).count(), " ms");
  CHECK(!generate(model, 0).empty());
}
