#include "sched/waiting_queue.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <random>

#include "sched/policy.h"

namespace heddle::sched {
namespace {

// Sequences that know their line, and what the queue should hold: a plain list sorted by key when it is asked.
struct Model {
  struct Entry {
    Sequence sequence;
    uint32_t line = 0;
    bool queued = false;
  };
  explicit Model(size_t n) : entries(n) {
    for (size_t i = 0; i < n; ++i) {
      entries[i].sequence.id = SeqId(i);
      entries[i].sequence.key = policy::fcfs_key(i);
    }
  }
  void push(size_t i, uint32_t line) {
    entries[i].line = line;
    entries[i].queued = true;
    queue.push(entries[i].sequence, line);
  }
  void remove(size_t i) {
    queue.remove(entries[i].sequence, entries[i].line);
    entries[i].queued = false;
    entries[i].sequence.deferral = Deferral::none;
  }
  std::vector<const Sequence*> expected(uint32_t line) const {
    std::vector<const Sequence*> all;
    for (const Entry& e : entries)
      if (e.queued && e.line == line) all.push_back(&e.sequence);
    std::sort(all.begin(), all.end(), [](const Sequence* a, const Sequence* b) { return a->key < b->key; });
    return all;
  }
  void check() const {
    std::vector<const Sequence*> order;
    uint32_t n_deferred = 0;
    for (uint32_t line = 0; line < queue.n_lines(); ++line) {
      const std::vector<const Sequence*> all = expected(line);
      order.insert(order.end(), all.begin(), all.end());
      std::vector<const Sequence*> ready, actual;
      for (const Sequence* s : all) (s->deferral == Deferral::none) ? ready.push_back(s) : void(++n_deferred);
      for (const Sequence& s : queue.ready(line)) actual.push_back(&s);
      CHECK(actual == ready);
      CHECK(queue.head(line) == (ready.empty() ? nullptr : ready.front()));
    }
    CHECK(queue.in_order() == order);
    CHECK(queue.n_deferred() == n_deferred);
    CHECK(queue.n_ready() == order.size() - n_deferred);
    CHECK(queue.size() == order.size());
  }
  ~Model() {
    for (size_t i = 0; i < entries.size(); ++i)
      if (entries[i].queued) remove(i);
  }

  std::vector<Entry> entries;
  WaitingQueue queue;
};

TEST_CASE("a queue that was never used has no head in any line") {
  const WaitingQueue queue;
  CHECK(queue.head(0) == nullptr);
  CHECK(queue.head(7) == nullptr);
  CHECK(queue.size() == 0);
  CHECK(queue.in_order().empty());
}

TEST_CASE("a line is in the order of its keys, whatever the order of arrival") {
  Model model(5);
  for (const size_t i : {3u, 0u, 4u, 1u, 2u}) model.push(i, 0);
  model.check();
  model.remove(2);
  model.remove(0);
  model.remove(4);
  model.check();
  CHECK(model.queue.head(0)->id == SeqId(1));
}

TEST_CASE("a deferred sequence is passed over, and has its old place when it is ready again") {
  Model model(4);
  for (const size_t i : {0u, 1u, 2u}) model.push(i, 0);
  Sequence& first = model.entries[0].sequence;
  model.queue.defer(first, 0, Deferral::grammar);
  CHECK(model.queue.head(0)->id == SeqId(1));
  CHECK(model.queue.n_deferred() == 1);
  CHECK(model.queue.in_order().front() == &first);
  model.queue.defer(first, 0, Deferral::adapter);  // waits for something else now
  CHECK(model.queue.n_deferred() == 1);
  model.push(3, 0);
  model.queue.defer(first, 0, Deferral::none);
  CHECK(model.queue.head(0) == &first);
  CHECK(model.queue.n_deferred() == 0);
  model.check();
}

TEST_CASE("a sequence that is deferred when it comes is not ready") {
  Model model(2);
  model.entries[0].sequence.deferral = Deferral::image;
  model.push(0, 0);
  CHECK(model.queue.head(0) == nullptr);
  model.push(1, 0);
  CHECK(model.queue.head(0)->id == SeqId(1));
  model.check();
}

TEST_CASE("lines do not see each other") {
  Model model(4);
  model.push(0, 2);
  model.push(1, 0);
  model.push(2, 2);
  CHECK(model.queue.n_lines() == 3);
  CHECK(model.queue.head(0)->id == SeqId(1));
  CHECK(model.queue.head(1) == nullptr);
  CHECK(model.queue.head(2)->id == SeqId(0));
  model.remove(0);
  CHECK(model.queue.head(2)->id == SeqId(2));
  model.check();
}

TEST_CASE("after any calls the queue agrees with a plain list: pushed, deferred and removed in every state") {
  const uint32_t seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  const auto pick = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
  Model model(40);
  uint64_t n_preemptions = 0, order = 0;
  for (int step = 0; step < 3000; ++step) {
    const size_t i = pick(model.entries.size());
    Model::Entry& entry = model.entries[i];
    if (!entry.queued) {
      entry.sequence.key = pick(3) == 0 ? policy::returning_key(++n_preemptions) : policy::fcfs_key(++order);
      entry.sequence.deferral = static_cast<Deferral>(pick(3));
      model.push(i, static_cast<uint32_t>(pick(4)));
    } else if (pick(2) == 0) {
      model.queue.defer(entry.sequence, entry.line, static_cast<Deferral>(pick(6)));
    } else {
      model.remove(i);
    }
    if (step % 10 == 0) model.check();
  }
}

TEST_CASE("removals anywhere cost no walk: 100,000 in random order, where walks would take 5,000,000,000 steps") {
  constexpr size_t kN = 100'000;
  const uint32_t seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  Model model(kN);
  std::vector<size_t> order(kN);
  for (size_t i = 0; i < kN; ++i) {
    order[i] = i;
    if (i % 3 == 0) model.entries[i].sequence.deferral = Deferral::grammar;
    model.push(i, 0);
  }
  std::shuffle(order.begin(), order.end(), random);
  const auto start = std::chrono::steady_clock::now();
  for (const size_t i : order) model.remove(i);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(2));  // takes some 30 ms
  CHECK(model.queue.size() == 0);
}

}  // namespace
}  // namespace heddle::sched
