#include "sched/invariants.h"

#include "scheduler_fixture.h"

namespace heddle::sched {
namespace {

// A view in which all is well: one running sequence with two blocks, one waiting, one retiring with the third block.
View sound() {
  View view;
  view.block_size = 4;
  view.max_num_seqs = 2;
  view.n_plans_in_flight = 1;
  view.n_added = 4;
  view.n_finished = 1;
  view.n_cached_blocks = 1;
  view.blocks = {{1, true}, {1, false}, {1, false}, {0, true}, {0, false}};
  view.free_list = {BlockId(4), BlockId(3)};
  view.sequences = {
      {SeqId(1),
       SequenceState::running,
       Place::running,
       SlotId(0),
       5,
       20,
       5,
       5,
       4,
       1,
       1,
       1,
       Deferral::none,
       {BlockId(0), BlockId(1)}},
      {SeqId(2), SequenceState::waiting, Place::waiting, SlotId(0), 5, 20, 5, 0, 0, 0, 0, 0, Deferral::none, {}},
      {SeqId(3),
       SequenceState::retiring,
       Place::retiring,
       SlotId(0),
       2,
       9,
       4,
       3,
       2,
       1,
       1,
       0,
       Deferral::none,
       {BlockId(2)}},
  };
  return view;
}

void violates(const std::string& name, auto change) {
  View view = sound();
  change(view);
  const auto lines = violations(view);
  CAPTURE(name);
  REQUIRE_FALSE(lines.empty());
  CHECK(lines.front().rfind(name, 0) == 0);
}

TEST_CASE("a sound view violates nothing") { CHECK(violations(sound()) == std::vector<std::string>{}); }

TEST_CASE("the validator finds each way in which blocks can go astray") {
  violates("kv-conservation", [](View& v) { v.blocks[0].references = 2; });
  violates("kv-conservation", [](View& v) { v.sequences[0].blocks.pop_back(); });
  violates("kv-conservation", [](View& v) { v.free_list.pop_back(); });
  violates("kv-conservation", [](View& v) { v.free_list.push_back(BlockId(3)); });
  violates("kv-conservation", [](View& v) { v.free_list.push_back(BlockId(0)); });
  violates("kv-conservation", [](View& v) { v.n_cached_blocks = 0; });
  violates("kv-conservation", [](View& v) { v.sequences[0].blocks[1] = BlockId(77); });
}

TEST_CASE("the validator finds numbers that contradict each other") {
  violates("sequence-numbers", [](View& v) { v.sequences[0].n_committed = 6; });
  violates("sequence-numbers", [](View& v) { v.sequences[0].n_computed = 7; });
  violates("sequence-numbers", [](View& v) { v.sequences[0].n_placeholders = 2; });
  violates("sequence-numbers", [](View& v) { v.sequences[0].n_in_flight = 2; });
  violates("sequence-numbers", [](View& v) { v.sequences[0].n_limit = 5; });
  violates("sequence-numbers", [](View& v) { v.sequences[0].n_confirmed = 2; });
  violates("sequence-numbers", [](View& v) { v.sequences[0].n_in_flight = v.sequences[0].n_placeholders = 0; });
  violates("sequence-numbers", [](View& v) {
    v.sequences[0].blocks.pop_back();
    v.blocks[1].references = 0;
    v.free_list.push_back(BlockId(1));
  });
}

TEST_CASE("the validator finds states that contradict the scheduler's lists") {
  violates("sequence-state", [](View& v) { v.sequences[1].state = SequenceState::running; });
  violates("sequence-state", [](View& v) { v.sequences[0].state = SequenceState::preempted; });
  violates("sequence-state", [](View& v) { v.sequences[1].n_in_flight = 1; });
  violates("sequence-state", [](View& v) { v.sequences[0].slot = SlotId(2); });
  violates("sequence-state", [](View& v) { v.sequences[2].n_in_flight = v.sequences[2].n_placeholders = 0; });
  violates("one-end", [](View& v) { v.n_finished = 2; });
}

TEST_CASE("forward-progress: waiting while nothing runs or flies is a violation") {
  View view = sound();
  CHECK(progress_violations(view).empty());
  view.sequences.erase(view.sequences.begin());
  CHECK(progress_violations(view).empty());
  view.n_plans_in_flight = 0;
  REQUIRE(progress_violations(view).size() == 1);
  CHECK(progress_violations(view)[0].rfind("forward-progress", 0) == 0);
}

}  // namespace
}  // namespace heddle::sched
