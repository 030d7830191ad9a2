// A random world's life: how it is made, one turn after the other, how it ends, and what must hold all the time.
#include "random_world.h"

#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace heddle::engine::random_test {

namespace asio = boost::asio;

namespace {
constexpr uint64_t kPatience = 3000;  // turns without any progress
MonotonicTime clock_now;
MonotonicTime read_clock() { return clock_now; }
}  // namespace

void World::advance_clock(Monotonic::duration by) { clock_now += by; }
MonotonicTime World::time() const { return clock_now; }

World::World(uint64_t seed, uint64_t n_steps, Tally& tally)
    : seed_(seed), n_steps_(n_steps), tally_(tally), random_(seed), bench_(1 + static_cast<uint32_t>(seed % 8)) {
  clock_now = MonotonicTime{} + std::chrono::hours(1);
  bench_.traced = false;
  configure();
  bench_.build();
}

void World::configure() {
  sched::Config& c = bench_.config.scheduler;
  c.block_size = 1 + upto(7);
  c.n_blocks = 3 + upto(40);
  c.max_num_seqs = 1 + upto(7);
  c.max_num_batched_tokens = c.max_num_seqs + upto(30);
  c.max_model_len = 20 + upto(120);
  c.enable_prefix_caching = chance(0.8);
  if (chance(0.4)) {
    c.long_prefill_token_threshold = 1 + upto(10);
    if (chance(0.5)) c.max_long_partial_prefills = 1 + upto(1);
  }
  if (chance(0.2)) {
    c.enable_chunked_prefill = false;
    c.max_num_batched_tokens = c.max_model_len + upto(30);
  }
  if (chance(0.3)) c.watermark = 0.3 * std::uniform_real_distribution<>(0, 1)(random_);
  if (chance(0.1)) c.n_lookahead = std::min(1 + upto(2), c.n_blocks * c.block_size - 1);
  c.policy = static_cast<sched::PolicyKind>(seed_ / 8 % 3);
  c.fair_quantum = 1 + upto(40);
  c.tenant_weights = {{"a", 1 + upto(4)}};
  bench_.config.primary_eos = 0;
  bench_.config.vocab_size = kVocabulary;
  bench_.config.clock = read_clock;
  if (chance(0.7)) bench_.config.rates = Rates{1000.0 + upto(20000), 100};
  book_.primary_eos = 0;
  book_.limits = c;
  book_.nan_period = chance(0.3) ? 1500 : 0;

  habits_.sessions = chance(0.6);
  habits_.grammars = chance(0.4);
  habits_.deferrals = chance(0.4);
  habits_.deadlines = chance(0.5);
  habits_.operations = chance(0.5);
  habits_.busy_sinks = chance(0.5);
  habits_.early_faults = chance(0.4) ? 0.01 : 0;
  habits_.late_faults = chance(0.4) ? 0.01 : 0;
  habits_.device_fault_at = seed_ % 12 == 5 ? 50 + upto(300) : 0;

  StubOptions& stub = bench_.stub;
  stub.vocab_size = kVocabulary;
  stub.late = chance(0.6);
  stub.fault = [this](const sched::StepPlan& plan) { return on_launch(plan); };
  if (habits_.late_faults > 0) stub.wait_fault = [this](const sched::StepPlan& plan) { return on_wait(plan); };
  if (book_.nan_period > 0) {
    stub.next = [period = book_.nan_period](std::span<const TokenId> prefix, uint64_t seed) {
      return logits_of(prefix, seed, period);
    };
  }
  stub.wake_fault = [this]() -> std::optional<std::string> {
    if (!chance(0.5)) return std::nullopt;
    ++tally_["wake-ups that failed"];
    return "injected at waking up";
  };
}

asio::awaitable<void> World::step() {
  co_await asio::post(asio::use_awaitable);
  ++turn_;
  check_now();
}

asio::awaitable<void> World::drive() {
  const uint64_t n_most = 20 * n_steps_;
  while (n_steps() < n_steps_ && turn_ < n_most && engine().healthy()) {
    advance_clock(std::chrono::microseconds(upto(1500)));
    act();
    if (habits_.operations) operate();
    for (uint32_t i = 1 + upto(2); i > 0; --i) co_await step();
  }
  co_await settle();
  over_ = true;
  for (size_t i = 0; i < live_.size(); ++i) make_ready(*live_[i]);
  engine().stop();
  while (!live_.empty()) co_await step();
}

void World::check_now() {
  if (const auto lines = engine().violations(); !lines.empty()) FAIL(lines.front());
  const Snapshot s = engine().snapshot();
  REQUIRE(s.submitted == n_submitted_);
  if (frozen_) REQUIRE(s.steps == *frozen_);
  REQUIRE((engine().healthy() || device_lost_));
  for (; !due_.empty() && due_.front().turn <= turn_; due_.pop_front()) {
    CAPTURE(due_.front().client->request.id);
    REQUIRE(due_.front().client->n_ends == 1);
  }
  for (const Client* client : live_) REQUIRE(client->n_ends == 0);
  just_ended_.clear();
  // Something happens, or there is a reason why not.
  const uint64_t sum = s.steps + clients_.size() - live_.size() + s.submitted;
  if (sum != last_sum_) last_progress_ = turn_;
  last_sum_ = sum;
  if (turn_ - last_progress_ < kPatience) return;
  std::string stuck;
  for (const Client* client : live_)
    stuck += fmt::format(" {}{}{}", client->request.id, client->deferred ? " deferred" : "",
                         client->is_between() ? " between" : "");
  FAIL(fmt::format("no progress: {} running, {} waiting, {} in flight, {} parked, paused {}, operations {}:{}",
                   s.running, s.waiting, s.in_flight, s.parked_sessions, engine().is_paused(), n_operations_, stuck));
}

void World::check_end() {
  const Snapshot s = engine().snapshot();
  REQUIRE(engine().violations() == std::vector<std::string>{});
  REQUIRE(s.blocks_held == 0);
  REQUIRE(s.running == 0);
  REQUIRE(s.waiting == 0);
  REQUIRE(s.submitted == s.rejected + s.finished_stop + s.finished_length + s.finished_abort + s.finished_error);
  // What the engine counted is what the clients heard. Turns that never began are only counted.
  uint64_t n[4] = {}, n_unheard = 0;
  for (const auto& client : clients_) {
    REQUIRE(client->n_ends == 1);
    for (const Client::Round& round : client->rounds) {
      for (const Client::Answer& answer : round.answers) {
        if (answer.finish)
          ++n[static_cast<size_t>(answer.finish->reason)];
        else
          ++n_unheard;
      }
    }
  }
  REQUIRE(s.finished_stop == n[0]);
  REQUIRE(s.finished_length == n[1]);
  REQUIRE(s.finished_abort + s.finished_error == n[2] + n[3] + n_unheard);
  REQUIRE(s.finished_error >= n[3]);
  tally_["stops"] += s.finished_stop;
  tally_["lengths"] += s.finished_length;
  tally_["aborts"] += s.finished_abort;
  tally_["errors"] += s.finished_error;
  tally_["preemptions"] += s.preemptions;
  tally_["forks"] += s.forks;
  tally_["copied blocks"] += s.copied_blocks;
  tally_["merged blocks"] += s.merged_blocks;
  tally_["prefix hits"] += s.prefix_hits;
  tally_["discarded tokens"] += s.discarded_tokens;
  tally_["evicted sessions"] += s.evicted_sessions;
  tally_["deadlines of queued ones"] += s.deadlines_queued;
  tally_["deadlines of running ones"] += s.deadlines_running;
  tally_["cache resets"] += s.cache_resets;
  tally_["steps"] += s.steps;
}

void World::run() {
  const uint64_t seed = seed_;
  CAPTURE(seed);
  bench_.start();
  asio::co_spawn(bench_.io, drive(), [](const std::exception_ptr& error) {
    if (error) std::rethrow_exception(error);
  });
  bench_.io.run();
  REQUIRE_FALSE(bench_.running);
  check_end();
}

}  // namespace heddle::engine::random_test
