#include "sched/invariants.h"

#include <fmt/format.h>

#include <algorithm>

namespace heddle::sched {
namespace {

using Lines = std::vector<std::string>;

void check_blocks(const View& view, Lines& out) {
  std::vector<uint32_t> held(view.blocks.size()), listed(view.blocks.size());
  for (const SequenceView& s : view.sequences) {
    for (const BlockId id : s.blocks) {
      if (id.value < held.size())
        ++held[id.value];
      else
        out.push_back(
            fmt::format("kv-conservation: sequence {} holds block {}, which does not exist", s.id.value, id.value));
    }
  }
  for (const BlockId id : view.free_list) ++listed[id.value];
  uint32_t n_cached = 0;
  for (size_t i = 0; i < view.blocks.size(); ++i) {
    const BlockView& block = view.blocks[i];
    if (block.references != held[i])
      out.push_back(
          fmt::format("kv-conservation: block {} has {} references, {} tables hold it", i, block.references, held[i]));
    if (listed[i] != (block.references == 0 ? 1u : 0u))
      out.push_back(fmt::format("kv-conservation: block {} with {} references is {} times in the free list", i,
                                block.references, listed[i]));
    n_cached += block.references == 0 && block.hashed;
  }
  if (n_cached != view.n_cached_blocks)
    out.push_back(
        fmt::format("kv-conservation: {} blocks are cached, the pool counts {}", n_cached, view.n_cached_blocks));
}

void check_numbers(const View& view, const SequenceView& s, Lines& out) {
  const auto bad = [&](std::string_view what) {
    out.push_back(
        fmt::format("sequence-numbers: sequence {}: {} (prompt {}, limit {}, known {}, computed {}, committed {}, "
                    "placeholders {}, in flight {}, confirmed blocks {}, blocks {})",
                    s.id.value, what, s.n_prompt, s.n_limit, s.n_known, s.n_computed, s.n_committed, s.n_placeholders,
                    s.n_in_flight, s.n_confirmed, s.blocks.size()));
  };
  if (s.n_committed > s.n_computed) bad("committed more than computed");
  if (s.n_placeholders > s.n_in_flight) bad("more tokens than steps in flight");
  if (s.n_in_flight > view.n_plans_in_flight) bad("in flight in more steps than there are");
  if (s.place == Place::retiring) return;  // its tokens no longer count
  if (s.place == Place::parked) {
    if (s.n_in_flight > 0) return;  // nor do those of rows that are still to land
    if (s.n_computed != s.n_committed) bad("parked with rows that nobody committed");
    if (s.n_committed > s.n_known) bad("parked with more rows than tokens");
    if (uint64_t{s.blocks.size()} * view.block_size < s.n_computed) bad("blocks do not cover what was computed");
    return;
  }
  if (s.n_computed > s.n_known + s.n_placeholders) bad("computed past its newest token");
  if (s.n_known + s.n_placeholders > s.n_limit) bad("planned past its limit");
  if (s.n_known >= s.n_limit && s.deferral != Deferral::input) bad("at its limit and not ended");
  if (s.place != Place::running) return;
  if (uint64_t{s.blocks.size()} * view.block_size < s.n_computed) bad("blocks do not cover what was computed");
  if (uint64_t{s.n_confirmed} * view.block_size > s.n_committed) bad("shared blocks that were not committed");
  if (s.n_in_flight == 0 && s.n_committed != s.n_computed)
    bad("computed rows that are neither committed nor in flight");
}

void check_places(const View& view, Lines& out) {
  std::vector<uint32_t> slots(view.max_num_seqs);
  for (const SequenceView& s : view.sequences) {
    const auto bad = [&](std::string_view what) {
      out.push_back(fmt::format("sequence-state: sequence {}: {}", s.id.value, what));
    };
    const bool queued = s.state == SequenceState::waiting || s.state == SequenceState::preempted;
    const bool waits = s.place == Place::waiting || s.place == Place::attached;
    if (waits != queued) bad("its state and the queue disagree");
    if ((s.place == Place::running) != (s.state == SequenceState::running))
      bad("its state and the running list disagree");
    if ((s.place == Place::retiring) != (s.state == SequenceState::retiring))
      bad("its state and the retiring list disagree");
    if ((s.place == Place::parked) != (s.state == SequenceState::parked)) bad("its state and the parked list disagree");
    if (waits && !s.blocks.empty()) bad("waits with blocks");
    if (waits && s.n_computed != 0) bad("waits with computed rows");
    if (s.state == SequenceState::waiting && s.n_in_flight != 0) bad("in flight before it was ever planned");
    if (s.place == Place::retiring && s.n_in_flight == 0) bad("release-after-flight: landed, but not retired");
    if (s.place != Place::running) continue;
    if (s.slot.value >= slots.size())
      bad("its slot does not exist");
    else if (++slots[s.slot.value] > 1)
      bad("its slot belongs to another one too");
  }
}

}  // namespace

std::vector<std::string> violations(const View& view) {
  Lines out;
  check_blocks(view, out);
  for (const SequenceView& s : view.sequences) check_numbers(view, s, out);
  check_places(view, out);
  if (view.n_added != view.n_finished + view.sequences.size())
    out.push_back(fmt::format("one-end: {} sequences added, {} finished, {} live", view.n_added, view.n_finished,
                              view.sequences.size()));
  return out;
}

std::vector<std::string> progress_violations(const View& view) {
  if (view.paused || view.n_plans_in_flight > 0) return {};
  size_t n_ready = 0;
  for (const SequenceView& s : view.sequences) {
    if (s.place == Place::running || s.place == Place::parked) return {};
    n_ready += s.place == Place::waiting && s.deferral == Deferral::none;
  }
  if (n_ready == 0) return {};
  return {fmt::format("forward-progress: {} sequences wait for room, none runs, nothing is in flight", n_ready)};
}

}  // namespace heddle::sched
