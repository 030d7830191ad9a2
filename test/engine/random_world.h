#pragma once
// One engine over the stub with a random configuration, clients that do random things to it, an operator, a clock and
// faults. Everything follows from the seed. Checks itself while it runs and when it ends.
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string_view>
#include <vector>

#include "engine_fixture.h"
#include "random_client.h"

namespace heddle::engine::random_test {

// Turns of the driver after which a request that was aborted has ended.
constexpr uint64_t kTurnsToEnd = 4;

// How often things happened, by name.
using Tally = std::map<std::string_view, uint64_t>;

class World final : public ClientEvents {
 public:
  World(uint64_t seed, uint64_t n_steps, Tally& tally);
  void run();
  uint64_t n_steps() const { return bench_.engine->snapshot().steps; }

 private:
  struct SequenceRecord {
    Client* client = nullptr;
    uint32_t index = 0;
    const sched::Sequence* sequence = nullptr;  // once it was planned; dangles after the client's end
    size_t round = 0;                           // the last one that it was planned in
  };
  // What a world has besides plain requests.
  struct Habits {
    bool sessions = false, grammars = false, deferrals = false, deadlines = false, operations = false;
    bool busy_sinks = false;                   // sinks act from within a delta
    double early_faults = 0, late_faults = 0;  // at launch, at wait: share of the steps
    uint64_t device_fault_at = 0;              // launch; 0: never
  };

  // random_world.cpp: the world's life
  void configure();
  boost::asio::awaitable<void> drive();
  boost::asio::awaitable<void> settle();
  boost::asio::awaitable<void> step();
  void check_now();
  void check_end();
  void advance_clock(Monotonic::duration by);
  MonotonicTime time() const;

  // random_requests.cpp: what clients do
  Request invent();
  std::vector<TokenId> invent_prompt(uint32_t n_most);
  device::SlotSampling invent_sampling();
  void submit();
  void submit(Request request);
  void act();
  void act_on(Client& client);
  void abort(Client& client);
  void abort_all(const std::string& prefix);
  void count_states(const Client& client);
  void append(Client& client);
  void close(Client& client);
  void make_ready(Client& client);
  Client* any_live();
  Client* any_session();
  bool has_attached(const Client& client) const;
  bool turn_has_just_ended(const Client& client) const;
  void on_delta(Client& client, const Delta& delta) override;
  void on_turn(Client& client) override;
  void on_end(Client& client, const Times& times) override;
  void check_deadline(const Client& client);

  // random_operations.cpp: an operator and a device that fails
  void operate();
  boost::asio::awaitable<void> pause(PauseMode mode, bool clear_cache);
  boost::asio::awaitable<void> sleep(SleepLevel level, PauseMode mode);
  boost::asio::awaitable<void> wake_up(WakeTags tags);
  boost::asio::awaitable<void> reset(bool reset_running);
  void spawn(boost::asio::awaitable<void> operation);
  struct Watch {
    bool alone;  // no other operation was under way
    uint32_t n_resumes, n_begun;
  };
  Watch begin_operation(bool aborts);
  bool undisturbed(const Watch& watch) const;
  void end_operation(bool aborts);
  void check_paused(PauseMode mode, bool clear_cache);
  void check_asleep(SleepLevel level);
  std::optional<Fault> on_launch(const sched::StepPlan& plan);
  std::optional<Fault> on_wait(const sched::StepPlan& plan);
  Fault make_fault(const sched::StepPlan& plan, std::string message);

  uint32_t upto(uint32_t most) { return static_cast<uint32_t>(random_() % (most + 1)); }
  bool chance(double p) { return std::uniform_real_distribution<>(0, 1)(random_) < p; }
  Engine& engine() { return *bench_.engine; }
  SequenceRecord& record(SeqId id) { return sequences_[id.value - 1]; }
  const SequenceRecord& record(const Client& client, uint32_t index) const {
    return sequences_[client.first_sequence - 1 + index];
  }

  uint64_t seed_, n_steps_;
  Tally& tally_;
  std::mt19937_64 random_;
  EngineBench bench_;
  Book book_;
  Habits habits_{};
  std::vector<std::shared_ptr<Client>> clients_;
  std::vector<Client*> live_;
  std::vector<SequenceRecord> sequences_;  // by id, from 1
  std::vector<const Client*> just_ended_;  // since the driver's last turn
  uint64_t n_submitted_ = 0;               // sequences and turns, refused ones included
  bool over_ = false;                      // no new work
  // Clients that must have ended when the driver has had so many turns more.
  struct Due {
    std::shared_ptr<Client> client;
    uint64_t turn;
  };
  std::deque<Due> due_;
  uint64_t turn_ = 0, last_progress_ = 0, last_sum_ = 0;

  uint32_t n_operations_ = 0, n_aborting_ = 0, n_resumes_ = 0, n_begun_ = 0;
  std::optional<uint64_t> frozen_;  // steps: none may be made
  uint64_t n_launches_ = 0;
  std::deque<std::vector<SeqId>> flights_;  // the newest launches, as many as the pipeline is deep
  uint32_t n_marked_ = 0;                   // launches to come that an earlier one's fault may void
  bool device_lost_ = false;
};

}  // namespace heddle::engine::random_test
