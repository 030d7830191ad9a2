// A random world's operator, who pauses, puts to sleep, wakes and resets while clients go on, and its device's faults.
#include "random_world.h"

#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace heddle::engine::random_test {

namespace asio = boost::asio;

void World::spawn(asio::awaitable<void> operation) {
  asio::co_spawn(bench_.io, std::move(operation), [](const std::exception_ptr& error) {
    if (error) std::rethrow_exception(error);
  });
}

World::Watch World::begin_operation(bool aborts) {
  ++n_operations_;
  n_aborting_ += aborts;
  frozen_.reset();
  return {n_operations_ == 1, n_resumes_, ++n_begun_};
}

// Nobody else did anything to the engine's pause since the operation began.
bool World::undisturbed(const Watch& watch) const {
  return watch.alone && watch.n_begun == n_begun_ && watch.n_resumes == n_resumes_;
}

// Whoever was live may have been aborted by now, and may not have heard of it yet.
void World::end_operation(bool aborts) {
  --n_operations_;
  n_aborting_ -= aborts;
  if (!aborts) return;
  for (Client* client : live_) client->may_abort = true;
}

void World::operate() {
  if (n_operations_ < 3 && chance(0.03)) {
    const auto mode = static_cast<PauseMode>(upto(2));
    switch (upto(3)) {
      case 0:
        return spawn(pause(mode, chance(0.5)));
      case 1:
        return spawn(sleep(static_cast<SleepLevel>(upto(2)), mode));
      default:
        return spawn(reset(chance(0.5)));
    }
  }
  if (engine().is_sleeping() && chance(0.08))
    spawn(wake_up(chance(0.7) ? WakeTags{} : WakeTags{chance(0.5), chance(0.5), chance(0.5)}));
  if (engine().is_paused() && chance(0.08)) {
    ++n_resumes_;
    frozen_.reset();
    engine().resume();
  }
}

asio::awaitable<void> World::pause(PauseMode mode, bool clear_cache) {
  const Watch watch = begin_operation(mode == PauseMode::abort);
  co_await engine().pause(mode, clear_cache);
  end_operation(mode == PauseMode::abort);
  ++tally_[mode == PauseMode::abort  ? "pauses that abort"
           : mode == PauseMode::wait ? "pauses that wait"
                                     : "pauses that keep"];
  if (undisturbed(watch)) check_paused(mode, clear_cache);
}

void World::check_paused(PauseMode mode, bool clear_cache) {
  const Snapshot s = engine().snapshot();
  REQUIRE(engine().is_paused());
  REQUIRE(s.in_flight == 0);
  if (mode != PauseMode::keep || clear_cache) REQUIRE(s.running == 0);
  if (clear_cache) REQUIRE(s.blocks_held + s.blocks_cached == 0);
  if (mode == PauseMode::keep) frozen_ = s.steps;
}

asio::awaitable<void> World::sleep(SleepLevel level, PauseMode mode) {
  const Watch watch = begin_operation(mode == PauseMode::abort);
  const Result<void> asleep = co_await engine().sleep(level, mode);
  end_operation(mode == PauseMode::abort);
  REQUIRE(asleep.has_value());
  ++tally_[level == SleepLevel::pause     ? "sleeps at level 0"
           : level == SleepLevel::weights ? "sleeps at level 1"
                                          : "sleeps at level 2"];
  if (undisturbed(watch)) check_asleep(level);
}

void World::check_asleep(SleepLevel level) {
  REQUIRE(engine().is_paused());
  if (level == SleepLevel::pause) return;
  const Snapshot s = engine().snapshot();
  REQUIRE(s.blocks_held + s.blocks_cached == 0);
  REQUIRE(s.running + s.in_flight == 0);
  frozen_ = s.steps;
}

asio::awaitable<void> World::wake_up(WakeTags tags) {
  begin_operation(false);
  const Result<void> woken = co_await engine().wake_up(tags);
  end_operation(false);
  if (!woken) {
    REQUIRE(woken.error().message == "injected at waking up");
    REQUIRE(engine().is_sleeping());
  } else {
    ++tally_["wake-ups"];
  }
}

asio::awaitable<void> World::reset(bool reset_running) {
  begin_operation(false);
  const bool done = co_await engine().reset_prefix_cache(reset_running);
  end_operation(false);
  ++tally_[!done ? "resets refused" : reset_running ? "resets of running ones" : "resets"];
  if (reset_running) REQUIRE(done);
  if (done) REQUIRE(engine().snapshot().blocks_cached == 0);
}

// Ends what the operator began.
asio::awaitable<void> World::settle() {
  while (n_operations_ > 0) {
    ++n_resumes_;
    if (engine().is_paused()) engine().resume();
    frozen_.reset();
    co_await step();
  }
  while (engine().is_sleeping()) {
    co_await wake_up({});
    co_await step();
  }
}

Fault World::make_fault(const sched::StepPlan& plan, std::string message) {
  const SeqId guilty = plan.seqs[upto(static_cast<uint32_t>(plan.seqs.size()) - 1)].id;
  Fault fault{{}, std::move(message), chance(0.7) ? Fault::Scope::sequence : Fault::Scope::steps, guilty};
  SequenceRecord& of = record(guilty);
  of.client->may_fault.insert(of.index);
  ++tally_[fault.scope == Fault::Scope::sequence ? "faults of a sequence" : "faults of steps"];
  return fault;
}

std::optional<Fault> World::on_launch(const sched::StepPlan& plan) {
  if (const auto lines = engine().violations(); !lines.empty()) FAIL(lines.front());
  if (flights_.size() == bench_.config.pipeline_depth) flights_.pop_front();
  std::vector<SeqId>& flight = flights_.emplace_back();
  for (const sched::SeqStep& step : plan.seqs) {
    SequenceRecord& of = record(step.id);
    of.sequence = step.sequence;
    of.round = of.client->now;
    flight.push_back(step.id);
    if (step.masked && step.sequence->n_placeholders > 1) ++tally_["samplings held back"];
    if (n_marked_ > 0) of.client->may_fault.insert(of.index);
  }
  n_marked_ -= n_marked_ > 0;
  if (++n_launches_ == habits_.device_fault_at) {
    device_lost_ = true;
    for (Client* client : live_)
      for (uint32_t i = 0; i < client->request.n; ++i) client->may_fault.insert(i);
    return Fault{{}, "injected: the device is lost", Fault::Scope::device, {}};
  }
  if (device_lost_ || !chance(habits_.early_faults)) return std::nullopt;
  Fault fault = make_fault(plan, "injected at launch");
  if (fault.scope == Fault::Scope::steps) {
    for (const SeqId id : flight) record(id).client->may_fault.insert(record(id).index);
    n_marked_ = bench_.config.pipeline_depth;
  }
  return fault;
}

std::optional<Fault> World::on_wait(const sched::StepPlan& plan) {
  if (device_lost_ || !chance(habits_.late_faults)) return std::nullopt;
  Fault fault = make_fault(plan, "injected at wait");
  Client& guilty = *record(fault.guilty).client;
  if (guilty.n_ends == 0 && guilty.request.n == 1) due_.push_back({guilty.shared_from_this(), turn_ + kTurnsToEnd});
  if (fault.scope == Fault::Scope::steps)
    for (const auto& flight : flights_)
      for (const SeqId id : flight) record(id).client->may_fault.insert(record(id).index);
  return fault;
}

}  // namespace heddle::engine::random_test
