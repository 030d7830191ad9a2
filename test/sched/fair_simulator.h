#pragma once
// Tenants that share slots and rows under the fair policy, without a scheduler: places are slots only, and every
// sequence is known in advance. One call of step() is a plan and its commit.
#include <deque>
#include <optional>
#include <vector>

#include "sched/fair_policy.h"

namespace heddle::sched {

class FairSimulator {
 public:
  struct Work {
    uint32_t prompt = 1, answer = 1;
    uint32_t known = 0, computed = 0;
    uint64_t arrival = 0;  // step
    bool started = false;  // has its first token
  };
  struct Tenant {
    std::deque<Work> queue;
    uint64_t n_rows = 0;  // while contended
    uint64_t n_tokens = 0;
    uint64_t n_claimed = 0;          // exchanges
    uint64_t worst_first_token = 0;  // plans from arrival to the one that has the first token, both counted
  };

  FairSimulator(uint32_t n_slots, uint32_t step_rows, fair::FairRules rules)
      : n_slots_(n_slots), step_rows_(step_rows), policy_(rules) {}

  uint32_t add_tenant(uint32_t weight) {
    policy_.add_line(static_cast<uint32_t>(tenants.size()), weight);
    tenants.emplace_back();
    return static_cast<uint32_t>(tenants.size() - 1);
  }
  void add(uint32_t tenant, uint32_t prompt, uint32_t answer) {
    tenants[tenant].queue.push_back({prompt, answer, prompt, 0, n_steps, false});
  }

  void step() {
    list();
    policy_.begin_plan(lines_);
    contended = fair::contended(lines_);
    uint32_t budget = step_rows_;
    n_exchanges = 0;
    for (Run& run : running_) plan(run, budget);
    while (budget > 0) {
      list();
      const std::optional<uint32_t> line = policy_.next_line(lines_);
      if (!line) break;
      if (running_.size() == n_slots_) {
        if (!exchange(*line) || !running_.empty()) break;
        continue;  // nobody runs any more: the plan would be empty
      }
      running_.push_back({tenants[*line].queue.front(), *line, 0});
      tenants[*line].queue.pop_front();
      policy_.admitted(*line);
      plan(running_.back(), budget);
    }
    ++n_steps;
    commit();
  }

  uint32_t n_running(uint32_t tenant) const {
    uint32_t n = 0;
    for (const Run& run : running_) n += run.line == tenant;
    return n;
  }
  const fair::FairAccount& account(uint32_t tenant) const { return policy_.accounts()[tenant]; }

  std::vector<Tenant> tenants;
  uint64_t n_steps = 0;
  uint32_t n_exchanges = 0;  // of the last step
  bool contended = false;    // in the last step
  uint32_t n_planned = 0;    // rows of the last step

 private:
  struct Run {
    Work work;
    uint32_t line = 0;
    uint32_t rows = 0;  // in the plan under way
  };

  void list() {
    lines_.assign(tenants.size(), {});
    for (const Run& run : running_) {
      ++lines_[run.line].n_running;
      lines_[run.line].n_missing += run.work.known - run.work.computed;
    }
    for (size_t i = 0; i < tenants.size(); ++i) {
      lines_[i].n_ready = static_cast<uint32_t>(tenants[i].queue.size());
      if (!tenants[i].queue.empty()) lines_[i].head_cost = tenants[i].queue.front().known;
    }
  }
  void plan(Run& run, uint32_t& budget) {
    if (budget == 0) return;
    const uint32_t n = std::min(run.work.known - run.work.computed, policy_.rows_for(run.line, budget, lines_));
    run.rows = n;
    run.work.computed += n;
    budget -= n;
    policy_.charge(run.line, n);
    if (contended) tenants[run.line].n_rows += n;
  }
  bool exchange(uint32_t line) {
    candidates_.clear();
    for (const Run& run : running_) candidates_.push_back({SeqId(), 0, 0, run.line});
    const std::optional<size_t> at = policy_.yields_to(line, lines_, candidates_);
    if (!at) return false;
    Run& run = running_[*at];
    policy_.charge(run.line, -int64_t{run.rows});
    if (contended) tenants[run.line].n_rows -= run.rows;
    run.work.computed = 0;
    tenants[run.line].queue.push_front(run.work);
    ++tenants[line].n_claimed;
    ++n_exchanges;
    running_.erase(running_.begin() + static_cast<ptrdiff_t>(*at));
    return true;
  }
  void commit() {
    n_planned = 0;
    for (Run& run : running_) {
      n_planned += run.rows;
      const bool sampled = run.rows > 0 && run.work.computed == run.work.known;
      run.rows = 0;
      if (!sampled) continue;
      Tenant& tenant = tenants[run.line];
      if (!run.work.started) tenant.worst_first_token = std::max(tenant.worst_first_token, n_steps - run.work.arrival);
      run.work.started = true;
      ++run.work.known;
      ++tenant.n_tokens;
    }
    std::erase_if(running_, [](const Run& run) { return run.work.known == run.work.prompt + run.work.answer; });
  }

  uint32_t n_slots_, step_rows_;
  FairPolicy policy_;
  std::vector<Run> running_;
  std::vector<LineState> lines_;
  std::vector<policy::Candidate> candidates_;
};

}  // namespace heddle::sched
