#pragma once
// A scheduler with named sequences and no engine: plans read as "A1 B31" (rows of each), results are made up, and the
// validator runs after every call.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "sched/admission.h"
#include "sched/scheduler.h"

namespace heddle::sched {

class SchedBench {
 public:
  explicit SchedBench(const Config& config, BlockHash hash = hash_block) : scheduler(config, hash) {}

  static Config config(uint32_t n_blocks, uint32_t block_size = 16) {
    Config c;
    c.n_blocks = n_blocks;
    c.block_size = block_size;
    c.max_num_seqs = 8;
    return c;
  }

  Sequence& add(char name, std::vector<TokenId> prompt, uint32_t max_tokens = 100, std::string salt = "") {
    Sequence& s = make(name, std::move(prompt), max_tokens, std::move(salt));
    scheduler.add(s);
    check();
    return s;
  }
  // With what policies look at.
  struct Traits {
    int32_t priority = 0;
    std::string tenant;
    Deferral deferral = Deferral::none;
  };
  Sequence& add(char name, uint32_t n_prompt, uint32_t max_tokens, const Traits& traits) {
    Sequence& s = make(name, prompt_of(name, n_prompt), max_tokens, "");
    s.priority = traits.priority;
    s.deferral = traits.deferral;
    scheduler.add(s, traits.tenant);
    check();
    return s;
  }
  // Sequences of one prompt, one for each letter; the first computes it.
  std::vector<Sequence*> add_family(std::string_view names, uint32_t n_prompt, uint32_t max_tokens = 100) {
    std::vector<Sequence*> family;
    for (const char name : names) family.push_back(&make(name, prompt_of(names.front(), n_prompt), max_tokens, ""));
    scheduler.add_family(family);
    check();
    return family;
  }
  // A prompt that shares no block with another name's.
  Sequence& add(char name, uint32_t n_prompt, uint32_t max_tokens = 100) {
    return add(name, prompt_of(name, n_prompt), max_tokens);
  }
  static std::vector<TokenId> prompt_of(char name, uint32_t n_prompt) {
    std::vector<TokenId> prompt(n_prompt);
    for (uint32_t i = 0; i < n_prompt; ++i) prompt[i] = name * 1000 + static_cast<TokenId>(i);
    return prompt;
  }

  // "A1 B31", or "" if there was nothing to plan.
  std::string plan() {
    auto step = std::make_unique<StepPlan>();
    const bool planned = scheduler.plan(*step, MonotonicTime{} + std::chrono::seconds(++n_plans_));
    CHECK(planned != step->empty());
    if (!planned) {
      CHECK(progress_violations(scheduler.view()) == std::vector<std::string>{});
      return "";
    }
    std::string text;
    uint32_t n_rows = 0;
    for (const SeqStep& s : step->seqs) {
      text += fmt::format("{}{}{}", text.empty() ? "" : " ", name(*s.sequence), s.n_tokens);
      n_rows += s.n_tokens;
    }
    CHECK(n_rows == step->n_rows);
    CHECK(n_rows <= scheduler.config().max_num_batched_tokens);
    flight.push_back(std::move(step));
    check();
    return text;
  }

  // Commits the oldest plan; sampled tokens are 1. Sequences at their limit end. Gives the names that got a token.
  std::string commit(TokenId token = 1) {
    REQUIRE_FALSE(flight.empty());
    const StepPlan& step = *flight.front();
    std::vector<SeqResult> results(step.seqs.size());
    for (size_t i = 0; i < results.size(); ++i)
      if (step.seqs[i].outputs == Outputs::sample) results[i].token = token;
    std::vector<Delivered> delivered;
    scheduler.commit(step, results, delivered);
    std::string names;
    for (const Delivered& d : delivered) {
      names += name(*d.sequence);
      if (d.sequence->n_known() >= d.sequence->n_limit) scheduler.finish(*d.sequence);
    }
    flight.pop_front();
    check();
    return names;
  }
  std::string step() {
    std::string text = plan();
    if (!text.empty()) commit();
    return text;
  }
  void fault() {
    while (!flight.empty()) {
      scheduler.rollback(*flight.back());
      flight.pop_back();
    }
    scheduler.forget_slots();
    check();
  }
  void finish(Sequence& s) {
    scheduler.finish(s);
    check();
  }

  void check() const {
    const auto lines = violations(scheduler.view());
    CHECK(lines == std::vector<std::string>{});
  }
  static char name(const Sequence& s) { return static_cast<const Named*>(s.owner)->name; }
  std::string queue() const {  // names, head first
    std::string names;
    for (const SequenceView& s : scheduler.view().sequences)
      if (s.place == Place::waiting)
        for (const Named& named : named_)
          if (named.sequence.id == s.id) names += named.name;
    return names;
  }
  std::vector<uint32_t> free_list() const {
    std::vector<uint32_t> ids;
    for (const BlockId id : scheduler.pool().free_list()) ids.push_back(id.value);
    return ids;
  }
  static std::vector<uint32_t> blocks(const Sequence& s) {
    std::vector<uint32_t> ids;
    for (const BlockId id : s.blocks.span()) ids.push_back(id.value);
    return ids;
  }

  Scheduler scheduler;
  std::deque<std::unique_ptr<StepPlan>> flight;

 private:
  Sequence& make(char name, std::vector<TokenId> prompt, uint32_t max_tokens, std::string salt) {
    Named& named = named_.emplace_back();
    named.name = name;
    Sequence& s = named.sequence;
    s.id = SeqId(named_.size());
    s.n_prompt = static_cast<uint32_t>(prompt.size());
    s.n_limit = limit_of(s.n_prompt, max_tokens, scheduler.config());
    s.tokens = std::move(prompt);
    s.domain = std::make_shared<const PrefixDomain>(PrefixDomain{"model", std::move(salt)});
    s.sampling = &named.sampling;
    s.owner = &named;
    return s;
  }

  struct Named {
    char name = '?';
    Sequence sequence;
    device::SlotSampling sampling;
  };
  std::deque<Named> named_;
  int n_plans_ = 0;
};

}  // namespace heddle::sched
