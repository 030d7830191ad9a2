#include "engine/stub_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/check.h"

namespace heddle::engine {
namespace {

// The chain over a prefix: splitmix64's finaliser (Steele, Lea, Flood 2014) on the previous value and the token.
constexpr uint64_t kEmptyPrefix = 0x9E3779B97F4A7C15u;
constexpr uint64_t mix(uint64_t x) {
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
  x = (x ^ x >> 27) * 0x94D049BB133111EBu;
  return x ^ x >> 31;
}
constexpr uint64_t extend(uint64_t chain, TokenId token) {
  return mix(chain + static_cast<uint32_t>(token) + kEmptyPrefix);
}
TokenId pick(uint64_t chain, uint64_t seed, TokenId vocab_size) {
  return static_cast<TokenId>(mix(chain ^ mix(seed)) % static_cast<uint64_t>(vocab_size));
}

}  // namespace

struct StubRunner::Position {
  TokenId token = -1;
  uint32_t position = UINT32_MAX;
  uint64_t chain = 0;  // over all tokens up to this one
};

struct StubRunner::Slot {
  bool joined = false;
  device::SlotSampling sampling;
  uint32_t n_prompt = 0;
  uint32_t n_tokens = 0;        // prompt, generated before it joined, sampled since
  TokenId last = -1;            // of these
  std::vector<TokenId> tokens;  // all of them, for read_back
  bool placed = false;          // its first step here told where it starts
  uint32_t next_position = 0;
};

struct StubRunner::Flight {
  Ticket ticket;
  const sched::StepPlan* plan = nullptr;
  std::vector<SeqResult> results;
  std::vector<std::vector<uint32_t>> masks;  // copies: those of the call need not live longer
  std::optional<Fault> fault;
  MonotonicTime begin{}, end{};
};

std::string CallTrace::text(std::string_view calls) const {
  std::string out;
  for (const Call& c : calls_) {
    if (calls.find(c.call) == std::string_view::npos) continue;
    if (!out.empty()) out += ' ';
    out += fmt::format("{}{}", c.call, c.step);
  }
  return out;
}

StubRunner::StubRunner(StubOptions options)
    : options_(std::move(options)),
      kv_(size_t{options_.n_blocks} * options_.block_size),
      slots_(options_.max_num_seqs),
      flights_(options_.pipeline_depth) {
  for (Flight& flight : flights_) flight.results.reserve(options_.max_num_seqs);
}

StubRunner::~StubRunner() = default;

TokenId StubRunner::token_after(std::span<const TokenId> prefix, uint64_t seed, TokenId vocab_size) {
  uint64_t chain = kEmptyPrefix;
  for (const TokenId token : prefix) chain = extend(chain, token);
  return pick(chain, seed, vocab_size);
}

Ticket StubRunner::launch(const sched::StepPlan& plan) {
  HEDDLE_CHECK_OP(n_launched_ - n_waited_, <, flights_.size());
  HEDDLE_CHECK_OP(n_launched_, ==, n_sampled_);
  HEDDLE_CHECK(!asleep_);
  check_plan(plan);
  Flight& flight = flights_[n_launched_ % flights_.size()];
  flight.ticket = Ticket{n_launched_++};
  flight.plan = &plan;
  flight.fault = options_.fault ? options_.fault(plan) : std::nullopt;
  n_rows_ += plan.n_rows;
  schedule(flight);
  if (options_.trace) options_.trace->add('L', flight.ticket.number);
  return flight.ticket;
}

void StubRunner::check_plan(const sched::StepPlan& plan) const {
  HEDDLE_CHECK(!plan.empty());
  uint32_t n_rows = 0, n_sampled = 0;
  for (size_t i = 0; i < plan.seqs.size(); ++i) {
    const sched::SeqStep& step = plan.seqs[i];
    HEDDLE_CHECK_OP(step.slot.value, <, slots_.size());
    n_sampled += step.outputs == sched::Outputs::sample;
    if (step.n_tokens == 0) {  // a fork
      HEDDLE_CHECK_OP(step.logits_of, <, i);
      const sched::SeqStep& parent = plan.seqs[step.logits_of];
      HEDDLE_CHECK(step.outputs == sched::Outputs::sample && parent.outputs == sched::Outputs::sample);
      HEDDLE_CHECK_OP(step.first_position, ==, parent.first_position + parent.n_tokens);
      continue;
    }
    HEDDLE_CHECK_OP(step.logits_of, ==, sched::kOwnRow);
    HEDDLE_CHECK_OP(step.blocks.size() * options_.block_size, >=, size_t{step.first_position} + step.n_tokens);
    if (options_.read_back)  // else O(1) a row
      for (const BlockId id : step.blocks) HEDDLE_CHECK_OP(id.value, <, options_.n_blocks);
    if (step.source == sched::TokenSource::host)
      HEDDLE_CHECK_OP(step.tokens.size(), ==, step.n_tokens);
    else
      HEDDLE_CHECK_OP(step.n_tokens, ==, 1u);
    n_rows += step.n_tokens;
  }
  HEDDLE_CHECK_OP(n_rows, ==, plan.n_rows);
  HEDDLE_CHECK_OP(n_sampled, ==, plan.n_sampled);
}

void StubRunner::schedule(Flight& flight) {
  if (options_.clock == StubOptions::Clock::none) return;
  const bool real = options_.clock == StubOptions::Clock::real;
  now_ = real ? Monotonic::now() : now_ + options_.host_time;
  flight.begin = std::max(now_, device_free_);
  const auto duration = options_.step_time + options_.row_time * flight.plan->n_rows;
  flight.end = flight.begin + duration;
  if (device_began_) idle_ += flight.begin - device_free_;
  device_began_ = true;
  busy_ += duration;
  device_free_ = flight.end;
}

void StubRunner::sample(Ticket ticket, const SampleArgs& args) {
  HEDDLE_CHECK_OP(ticket.number, ==, n_sampled_);
  HEDDLE_CHECK_OP(ticket.number, <, n_launched_);
  ++n_sampled_;
  if (options_.trace) options_.trace->add('S', ticket.number);
  Flight& flight = flights_[ticket.number % flights_.size()];
  size_t n_masked = 0;
  for (const sched::SeqStep& step : flight.plan->seqs)
    n_masked += step.masked && step.outputs == sched::Outputs::sample;
  HEDDLE_CHECK_OP(args.masks.size(), ==, n_masked);
  flight.masks.clear();
  for (const TokenMask mask : args.masks) {
    HEDDLE_CHECK_OP(mask.size() * 32, >=, static_cast<size_t>(options_.vocab_size));
    flight.masks.emplace_back(mask.begin(), mask.end());
  }
  if (!options_.late) compute(flight);
}

boost::asio::awaitable<Result<StepResult, Fault>> StubRunner::wait(Ticket ticket) {
  HEDDLE_CHECK_OP(ticket.number, ==, n_waited_);
  HEDDLE_CHECK_OP(ticket.number, <, n_sampled_);
  Flight& flight = flights_[ticket.number % flights_.size()];
  if (options_.clock == StubOptions::Clock::real && flight.end > Monotonic::now()) {
    const auto executor = co_await boost::asio::this_coro::executor;
    boost::asio::steady_timer timer(executor, flight.end);
    co_await timer.async_wait(boost::asio::as_tuple(boost::asio::use_awaitable));
  }
  if (!flight.fault && options_.wait_fault) flight.fault = options_.wait_fault(*flight.plan);
  if (flight.fault) {
    flight.fault->ticket = ticket;
    if (options_.trace) options_.trace->add('F', ticket.number);
    const Fault fault = *flight.fault;
    drop_all();
    co_return tl::unexpected<Fault>(fault);
  }
  if (options_.late) compute(flight);
  ++n_waited_;
  now_ = std::max(now_, flight.end);
  if (options_.trace) options_.trace->add('W', ticket.number);
  co_return StepResult{flight.results, flight.begin, flight.end};
}

void StubRunner::dummy_step() {
  ++n_dummy_steps_;
  if (options_.trace) options_.trace->add('D', n_dummy_steps_ - 1);
}

void StubRunner::sleep(SleepLevel level) {
  HEDDLE_CHECK_OP(n_launched_, ==, n_waited_);
  if (level == SleepLevel::pause) return;
  asleep_ = true;
  std::fill(kv_.begin(), kv_.end(), Position{});
  for (Slot& slot : slots_) slot.joined = false;
}

boost::asio::awaitable<Result<void>> StubRunner::wake_up() {
  if (options_.wake_fault) {
    if (const std::optional<std::string> fault = options_.wake_fault()) co_return fail(*fault);
  }
  asleep_ = false;
  co_return Result<void>{};
}

void StubRunner::drop_all() {
  n_waited_ = n_computed_ = n_sampled_ = n_launched_;
  for (Slot& slot : slots_) slot.joined = false;
}

StubRunner::Position& StubRunner::at(std::span<const BlockId> blocks, uint32_t position) {
  return kv_[size_t{blocks[position / options_.block_size].value} * options_.block_size +
             position % options_.block_size];
}

void StubRunner::compute(Flight& flight) {
  HEDDLE_CHECK_OP(flight.ticket.number, ==, n_computed_);
  ++n_computed_;
  const sched::StepPlan& plan = *flight.plan;
  flight.results.assign(plan.seqs.size(), {});
  for (const SlotId id : plan.left) {
    HEDDLE_CHECK(slots_[id.value].joined);
    slots_[id.value].joined = false;
  }
  for (const sched::SlotJoin& join : plan.joined) {
    Slot& slot = slots_[join.slot.value];
    HEDDLE_CHECK(!slot.joined);
    slot.joined = true;
    slot.placed = false;
    slot.sampling = *join.sampling;
    slot.n_prompt = static_cast<uint32_t>(join.prompt.size());
    slot.n_tokens = slot.n_prompt + static_cast<uint32_t>(join.generated.size());
    slot.last = join.generated.empty() ? join.prompt.back() : join.generated.back();
    if (!options_.read_back) continue;
    slot.tokens.assign(join.prompt.begin(), join.prompt.end());
    slot.tokens.insert(slot.tokens.end(), join.generated.begin(), join.generated.end());
  }
  copy_blocks(plan);
  // As on a device: every row of the step is stored before any is read.
  for (const sched::SeqStep& step : plan.seqs) compute_rows(step, slots_[step.slot.value]);
  size_t n_masked = 0;
  for (size_t i = 0; i < plan.seqs.size(); ++i) {
    const sched::SeqStep& step = plan.seqs[i];
    if (step.outputs != sched::Outputs::sample) continue;
    Slot& slot = slots_[step.slot.value];
    const TokenMask mask = step.masked ? TokenMask(flight.masks[n_masked++]) : TokenMask{};
    const TokenId token = sample_row(step, slot, mask);
    flight.results[i].token = token;
    flight.results[i].nan = token < 0;
    slot.last = token;
    ++slot.n_tokens;
    if (options_.read_back) slot.tokens.push_back(token);
  }
}

void StubRunner::copy_blocks(const sched::StepPlan& plan) {
  for (const sched::BlockCopy& copy : plan.copies) {
    HEDDLE_CHECK(copy.from != copy.to);
    const auto block = [this](BlockId id) { return kv_.begin() + ptrdiff_t{id.value} * options_.block_size; };
    std::copy(block(copy.from), block(copy.from) + options_.block_size, block(copy.to));
    ++n_copies_;
  }
}

void StubRunner::compute_rows(const sched::SeqStep& step, Slot& slot) {
  HEDDLE_CHECK(slot.joined);
  if (slot.placed) HEDDLE_CHECK_OP(step.first_position, ==, slot.next_position);
  slot.placed = true;
  slot.next_position = step.first_position + step.n_tokens;
  HEDDLE_CHECK_OP(slot.next_position, <=, slot.n_tokens);
  if (step.n_tokens > 0 && step.source == sched::TokenSource::slot)
    HEDDLE_CHECK_OP(slot.next_position, ==, slot.n_tokens);
  for (uint32_t i = 0; i < step.n_tokens; ++i) {
    const uint32_t position = step.first_position + i;
    const TokenId token = step.source == sched::TokenSource::host ? step.tokens[i] : slot.last;
    if (options_.read_back) HEDDLE_CHECK_OP(token, ==, slot.tokens[position]);
    const uint64_t before = position == 0 ? kEmptyPrefix : at(step.blocks, position - 1).chain;
    at(step.blocks, position) = {token, position, extend(before, token)};
  }
}

TokenId StubRunner::sample_row(const sched::SeqStep& step, Slot& slot, TokenMask mask) {
  const uint32_t n_positions = step.first_position + step.n_tokens;
  HEDDLE_CHECK_OP(n_positions, ==, slot.n_tokens);  // only the newest token's row is sampled
  HEDDLE_CHECK_OP(step.token_index, ==, slot.n_tokens - slot.n_prompt);
  uint64_t chain = at(step.blocks, n_positions - 1).chain;
  if (options_.read_back || options_.next) {
    prefix_.clear();
    chain = kEmptyPrefix;
    for (uint32_t i = 0; i < n_positions; ++i) {
      const Position& stored = at(step.blocks, i);
      HEDDLE_CHECK_OP(stored.position, ==, i);
      prefix_.push_back(stored.token);
      chain = extend(chain, stored.token);
    }
  }
  const uint64_t seed = slot.sampling.seed;
  TokenId token = options_.next ? options_.next(prefix_, seed) : pick(chain, seed, options_.vocab_size);
  // End tokens are masked while too few were generated (device/sampling.h): the next id that is not one is taken.
  const std::vector<TokenId>& ends = slot.sampling.end_tokens;
  const auto banned = [&](TokenId id) {
    const auto bit = static_cast<uint32_t>(id);
    if (!mask.empty() && (mask[bit / 32] >> bit % 32 & 1) == 0) return true;
    return step.token_index < slot.sampling.min_tokens && std::find(ends.begin(), ends.end(), id) != ends.end();
  };
  for (TokenId tried = 0; token >= 0 && banned(token); ++tried) {
    if (tried == options_.vocab_size) return -1;  // nothing is allowed
    token = (token + 1) % options_.vocab_size;
  }
  return token;
}

}  // namespace heddle::engine
