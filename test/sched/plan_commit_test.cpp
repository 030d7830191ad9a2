// A step as a transaction: what a plan says, what a commit and a rollback leave behind, how sequences end in each
// state.
#include "scheduler_fixture.h"

namespace heddle::sched {
namespace {

std::vector<uint32_t> values(const std::vector<SlotId>& ids) {
  std::vector<uint32_t> out;
  for (const SlotId id : ids) out.push_back(id.value);
  return out;
}

TEST_CASE("a prompt chunk takes its tokens from the host and samples only with its last row") {
  Config config = SchedBench::config(16, 4);
  config.max_num_batched_tokens = 8;
  SchedBench bench(config);
  Sequence& a = bench.add('A', 11);
  bench.plan();
  {
    const SeqStep& s = bench.flight.back()->seqs.at(0);
    CHECK(s.source == TokenSource::host);
    CHECK(s.outputs == Outputs::none);
    CHECK(s.first_position == 0);
    CHECK(s.tokens.data() == a.tokens.data());
    CHECK(s.tokens.size() == 8);
    CHECK(s.blocks.size() == 2);
    CHECK(bench.flight.back()->n_sampled == 0);
  }
  bench.plan();
  {
    const SeqStep& s = bench.flight.back()->seqs.at(0);
    CHECK(s.outputs == Outputs::sample);
    CHECK(s.first_position == 8);
    CHECK(s.n_tokens == 3);
    CHECK(s.token_index == 0);
    CHECK(s.blocks.size() == 3);
  }
  bench.plan();  // the first token is still in flight: the row reads it from the slot
  {
    const SeqStep& s = bench.flight.back()->seqs.at(0);
    CHECK(s.source == TokenSource::slot);
    CHECK(s.tokens.empty());
    CHECK(s.first_position == 11);
    CHECK(s.token_index == 1);
  }
  CHECK(bench.commit() == "");  // a step that only advances chunks gives nothing
  CHECK(bench.commit() == "A");
}

TEST_CASE("slots are deltas: joined once, left once, and one that changes hands is in both lists of one plan") {
  Config config = SchedBench::config(16, 4);
  config.max_num_seqs = 2;
  SchedBench bench(config);
  Sequence& a = bench.add('A', 4);
  bench.add('B', 4);
  Sequence& c = bench.add('C', 4);
  bench.plan();
  CHECK(bench.flight.back()->left.empty());
  REQUIRE(bench.flight.back()->joined.size() == 2);
  CHECK(bench.flight.back()->joined[0].slot == a.slot);
  CHECK(bench.flight.back()->joined[0].prompt.size() == 4);
  CHECK(bench.flight.back()->joined[0].generated.empty());
  CHECK(bench.flight.back()->joined[0].sampling == a.sampling);
  bench.commit();
  bench.plan();
  CHECK(bench.flight.back()->joined.empty());
  bench.commit();
  const SlotId slot = a.slot;
  bench.finish(a);
  CHECK(bench.plan() == "B1 C4");
  CHECK(values(bench.flight.back()->left) == std::vector<uint32_t>{slot.value});
  REQUIRE(bench.flight.back()->joined.size() == 1);
  CHECK(c.slot == slot);
  bench.commit();
  bench.plan();
  CHECK(bench.flight.back()->left.empty());
}

TEST_CASE("a slot that is left while nothing is planned is told to the runner by the next plan") {
  SchedBench bench(SchedBench::config(16, 4));
  Sequence& a = bench.add('A', 4);
  bench.step();
  bench.finish(a);
  CHECK(bench.plan() == "");
  bench.add('B', 4);
  CHECK(bench.plan() == "B4");
  CHECK(bench.flight.back()->left.size() == 1);
}

TEST_CASE("a preempted sequence joins again with the tokens that it had generated") {
  SchedBench bench(SchedBench::config(3, 4));
  Sequence& a = bench.add('A', 7, 2);
  bench.add('B', 4, 4);
  bench.step();
  bench.step();  // B gives way
  CHECK(a.state == SequenceState::finished);
  CHECK(bench.plan() == "B1");  // its first block is still in the prefix cache
  REQUIRE(bench.flight.back()->joined.size() == 1);
  CHECK(bench.flight.back()->joined[0].prompt.size() == 4);
  CHECK(bench.flight.back()->joined[0].generated.size() == 1);
  CHECK(bench.flight.back()->seqs.at(0).token_index == 1);
}

TEST_CASE("nothing is admitted beyond max_num_seqs") {
  Config config = SchedBench::config(64);
  config.max_num_seqs = 2;
  SchedBench bench(config);
  for (const char name : {'A', 'B', 'C'}) bench.add(name, 4);
  CHECK(bench.step() == "A4 B4");
  CHECK(bench.step() == "A1 B1");
  CHECK(bench.queue() == "C");
}

TEST_CASE("a sequence can be ended in every state, once, and its blocks come back when nothing in flight needs them") {
  const auto n_held = [](const SchedBench& bench) { return bench.scheduler.pool().n_held(); };
  SUBCASE("waiting") {
    SchedBench bench(SchedBench::config(16, 4));
    Sequence& a = bench.add('A', 4);
    bench.finish(a);
    CHECK(a.state == SequenceState::finished);
    CHECK(bench.plan() == "");
    CHECK(bench.scheduler.retired() == std::vector<Sequence*>{&a});
  }
  SUBCASE("running, nothing in flight") {
    SchedBench bench(SchedBench::config(16, 4));
    Sequence& a = bench.add('A', 4);
    bench.step();
    bench.finish(a);
    bench.finish(a);
    CHECK(a.state == SequenceState::finished);
    CHECK(n_held(bench) == 0);
    CHECK(bench.scheduler.retired().size() == 1);
  }
  SUBCASE("running, in flight: held until the last step that has its rows, whose tokens are dropped") {
    SchedBench bench(SchedBench::config(16, 4));
    Sequence& a = bench.add('A', 6);
    bench.add('B', 4);
    CHECK(bench.plan() == "A6 B4");
    CHECK(bench.plan() == "A1 B1");
    bench.finish(a);
    CHECK(a.state == SequenceState::retiring);
    CHECK(bench.scheduler.n_running() == 1);
    CHECK(bench.plan() == "B1");
    CHECK(bench.commit() == "B");
    CHECK(a.state == SequenceState::retiring);
    CHECK(bench.commit() == "B");
    CHECK(a.state == SequenceState::finished);
    CHECK(a.n_generated() == 0);
    CHECK(n_held(bench) == 2);  // B's
    CHECK(bench.scheduler.counters().n_discarded_tokens == 2);
  }
  SUBCASE("in a chunk of its prompt") {
    Config config = SchedBench::config(16, 4);
    config.max_num_batched_tokens = 8;
    SchedBench bench(config);
    Sequence& a = bench.add('A', 20);
    bench.plan();
    bench.finish(a);
    CHECK(bench.commit() == "");
    CHECK(a.state == SequenceState::finished);
    CHECK(n_held(bench) == 0);
    CHECK(bench.scheduler.counters().n_discarded_tokens == 0);
  }
  SUBCASE("preempted, with its token still in flight") {
    SchedBench bench(SchedBench::config(3, 4));
    bench.add('A', 7, 4);
    Sequence& b = bench.add('B', 3, 4);
    CHECK(bench.plan() == "A7 B3");
    CHECK(bench.plan() == "A1 B1");
    bench.commit();
    CHECK(bench.plan() == "A1");
    CHECK(b.state == SequenceState::preempted);
    CHECK(b.n_in_flight == 1);
    bench.finish(b);
    CHECK(b.state == SequenceState::retiring);
    CHECK(bench.commit() == "A");
    CHECK(b.state == SequenceState::finished);
    CHECK(b.n_generated() == 1);
  }
}

TEST_CASE("a NaN row appends nothing, shares nothing, and is reported so that its sequence can be ended") {
  SchedBench bench(SchedBench::config(16, 4));
  Sequence& a = bench.add('A', 8);
  bench.plan();
  std::vector<SeqResult> results(1);
  results[0].nan = true;
  std::vector<Delivered> delivered;
  bench.scheduler.commit(*bench.flight.front(), results, delivered);
  bench.flight.pop_front();
  REQUIRE(delivered.size() == 1);
  CHECK(delivered[0].token == -1);
  CHECK(a.n_known() == 8);
  bench.finish(a);
  CHECK(bench.scheduler.pool().n_cached() == 0);
}

TEST_CASE(
    "rollback: every plan in flight is undone, and the next one computes the same rows and joins every slot anew") {
  SchedBench bench(SchedBench::config(16, 4));
  Sequence& a = bench.add('A', 6);
  CHECK(bench.step() == "A6");
  Sequence& b = bench.add('B', 10);
  CHECK(bench.plan() == "A1 B10");
  CHECK(bench.plan() == "A1 B1");
  CHECK(bench.plan() == "A1 B1");
  bench.fault();
  CHECK(a.n_computed == 6);
  CHECK(a.n_placeholders == 0);
  CHECK(a.blocks.size() == 2);
  CHECK(b.state == SequenceState::running);
  CHECK(b.n_computed == 0);
  CHECK(b.blocks.size() == 0);
  CHECK(bench.plan() == "A1 B10");
  CHECK(bench.flight.back()->joined.size() == 2);
  CHECK(bench.flight.back()->left.empty());
  CHECK(bench.commit() == "AB");
}

TEST_CASE("rollback: a sequence that ended in flight retires, one that was preempted goes on waiting") {
  SchedBench bench(SchedBench::config(3, 4));
  Sequence& a = bench.add('A', 7, 4);
  Sequence& b = bench.add('B', 3, 4);
  CHECK(bench.plan() == "A7 B3");
  CHECK(bench.plan() == "A1 B1");
  bench.commit();
  CHECK(bench.plan() == "A1");
  CHECK(b.state == SequenceState::preempted);
  bench.finish(a);
  CHECK(a.state == SequenceState::retiring);
  bench.fault();
  CHECK(a.state == SequenceState::finished);
  CHECK(b.state == SequenceState::preempted);
  CHECK(b.n_placeholders == 0);
  CHECK(bench.plan() == "B4");  // the token of the voided step is sampled again
  CHECK(bench.commit() == "B");
}

TEST_CASE("rollback: blocks found in the prefix cache stay with the sequence that found them") {
  SchedBench bench(SchedBench::config(16, 4));
  const std::vector<TokenId> prompt(10, 3);
  bench.add('A', prompt, 1);
  CHECK(bench.step() == "A10");
  Sequence& b = bench.add('B', prompt, 4);
  CHECK(bench.plan() == "B2");
  bench.fault();
  CHECK(b.n_computed == 8);
  CHECK(b.blocks.size() == 2);
  CHECK(bench.plan() == "B2");
}

TEST_CASE("forward-progress: a head that can never run is named") {
  SchedBench bench(SchedBench::config(3, 4));
  Sequence a;  // past the door, which would refuse it
  a.id = SeqId(7);
  a.tokens.assign(20, 1);
  a.n_prompt = 20;
  a.n_limit = 30;
  a.domain = std::make_shared<const PrefixDomain>();
  bench.scheduler.add(a);
  StepPlan plan;
  CHECK_FALSE(bench.scheduler.plan(plan, {}));
  CHECK(bench.scheduler.stuck_head() == &a);
  CHECK(progress_violations(bench.scheduler.view()).size() == 1);
  bench.scheduler.finish(a);
  CHECK(bench.scheduler.stuck_head() == nullptr);
}

}  // namespace
}  // namespace heddle::sched
