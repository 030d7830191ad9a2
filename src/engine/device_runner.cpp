#include "engine/device_runner.h"

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cstring>

#include "base/check.h"
#include "model/forward.h"

namespace heddle::engine {

// One place of the pipeline.
struct DeviceRunner::Step {
  State state = State::free;
  Ticket ticket;
  const sched::StepPlan* plan = nullptr;
  device::Batch batch;
  device::Tensor logits;
  MonotonicTime begin{}, end{};

  std::vector<device::BatchSeq> seqs;
  std::vector<TokenId> tokens;
  std::vector<int32_t> positions;
  std::vector<uint32_t> row_seq;
  std::vector<uint32_t> head_rows;
  std::vector<uint32_t> last_rows;  // [plan.seqs]; of a fork: that of the entry that it samples from
  std::vector<device::SampleRow> sample_rows;
  std::vector<uint32_t> masked;               // indices into sample_rows
  std::vector<device::SampledToken> sampled;  // [sample_rows]
  std::vector<SeqResult> results;             // [plan.seqs]
  std::vector<float> host_logits;             // [head_rows, vocab], if the options ask for it
};

DeviceRunner::DeviceRunner(const boost::asio::any_io_executor& loop, std::unique_ptr<device::Device> device,
                           std::shared_ptr<ModelWeights> weights, const DeviceRunnerOptions& options)
    : options_(options), device_(std::move(device)), weights_(std::move(weights)), done_(loop) {
  HEDDLE_CHECK_OP(options.pipeline_depth, >=, 1u);
  weights_->hold();
  const uint32_t rows = options.max_num_batched_tokens;
  // Every sampler has a slot; with forks there may be more of them than rows.
  const uint32_t head_rows = std::max(options.max_num_seqs, std::min(options.all_logits_rows, rows));
  device_->allocate_kv(model().kv(), options.n_blocks, options.block_size);
  device_->allocate_slots(options.max_num_seqs, model().config().vocab_size);
  device_->allocate_arenas(1, model::activation_bytes(model().config(), *device_, rows, head_rows));
  for (uint32_t i = 0; i < options.pipeline_depth; ++i) {
    Step& step = *steps_.emplace_back(std::make_unique<Step>());
    step.seqs.reserve(options.max_num_seqs);
    step.tokens.reserve(rows);
    step.positions.reserve(rows);
    step.row_seq.reserve(rows);
    step.head_rows.reserve(head_rows);
    step.last_rows.reserve(options.max_num_seqs);
    step.sample_rows.reserve(options.max_num_seqs);
    step.masked.reserve(options.max_num_seqs);
    step.sampled.reserve(options.max_num_seqs);
    step.results.reserve(options.max_num_seqs);
  }
  done_.expires_at(boost::asio::steady_timer::time_point::max());
}

DeviceRunner::~DeviceRunner() {
  device_.reset();  // waits for what is under way, which reads the weights
  if (!asleep_) weights_->let_go();
}

DeviceRunner::Step& DeviceRunner::step(Ticket ticket) const {
  Step& step = *steps_[ticket.number % steps_.size()];
  HEDDLE_CHECK_OP(step.ticket.number, ==, ticket.number);
  return step;
}

void DeviceRunner::build_batch(const sched::StepPlan& plan, Step& step) const {
  step.seqs.clear();
  step.tokens.clear();
  step.positions.clear();
  step.row_seq.clear();
  step.head_rows.clear();
  step.last_rows.clear();
  step.sample_rows.clear();
  step.masked.clear();
  for (const sched::SeqStep& seq : plan.seqs) {
    if (seq.n_tokens == 0) {
      HEDDLE_CHECK_OP(seq.logits_of, <, step.last_rows.size());
      HEDDLE_CHECK(seq.outputs == sched::Outputs::sample);
      step.last_rows.push_back(step.last_rows[seq.logits_of]);
    } else {
      HEDDLE_CHECK_OP(seq.logits_of, ==, sched::kOwnRow);
      add_rows(seq, step);
      step.last_rows.push_back(static_cast<uint32_t>(step.tokens.size()) - 1);
    }
    if (seq.outputs != sched::Outputs::sample) continue;
    step.head_rows.push_back(step.last_rows.back());
    if (seq.masked) step.masked.push_back(static_cast<uint32_t>(step.sample_rows.size()));
    step.sample_rows.push_back({seq.slot, static_cast<uint32_t>(step.head_rows.size() - 1), seq.token_index});
  }
  HEDDLE_CHECK_OP(step.tokens.size(), ==, plan.n_rows);
  HEDDLE_CHECK_OP(plan.n_rows, <=, options_.max_num_batched_tokens);
  step.batch = {plan.n_rows, step.seqs, step.tokens, step.positions, step.row_seq, step.head_rows};
  step.sampled.assign(step.sample_rows.size(), {});
}

void DeviceRunner::add_rows(const sched::SeqStep& seq, Step& step) const {
  const auto first_row = static_cast<uint32_t>(step.tokens.size());
  const auto index = static_cast<uint32_t>(step.seqs.size());
  step.seqs.push_back({seq.slot, first_row, seq.n_tokens, seq.first_position, seq.blocks.data()});
  if (seq.source == sched::TokenSource::slot) {
    HEDDLE_CHECK_OP(seq.n_tokens, ==, 1u);
    step.tokens.push_back(-static_cast<TokenId>(seq.slot.value) - 1);
  } else {
    HEDDLE_CHECK_OP(seq.tokens.size(), ==, seq.n_tokens);
    step.tokens.insert(step.tokens.end(), seq.tokens.begin(), seq.tokens.end());
  }
  for (uint32_t i = 0; i < seq.n_tokens; ++i) {
    step.positions.push_back(static_cast<int32_t>(seq.first_position + i));
    step.row_seq.push_back(index);
    if (seq.outputs == sched::Outputs::all_logits) step.head_rows.push_back(first_row + i);
  }
}

Ticket DeviceRunner::launch(const sched::StepPlan& plan) {
  HEDDLE_CHECK_OP(n_launched_ - n_waited_, <, steps_.size());
  HEDDLE_CHECK_OP(n_launched_, ==, n_sampled_);  // the arena is shared: forward n+1 comes after sample n
  HEDDLE_CHECK(!plan.empty());
  HEDDLE_CHECK(!asleep_);
  Step& step = *steps_[n_launched_ % steps_.size()];
  step.ticket = Ticket{n_launched_++};
  step.plan = &plan;
  step.state = State::forwarded;
  build_batch(plan, step);

  device::Queue& queue = device_->queue();
  for (const SlotId slot : plan.left) device_->leave(queue, slot);
  for (const sched::SlotJoin& join : plan.joined)
    device_->join(queue, join.slot, *join.sampling, join.prompt, join.generated);
  device_->copy_blocks(queue, plan.copies);
  device_->reset_arena(0);
  model::Forward forward(*device_, queue, step.batch, 0);
  step.logits = model().forward(forward);
  HEDDLE_CHECK_OP(step.logits.rows, ==, step.head_rows.size());
  if (!step.masked.empty()) queue.submit();  // it runs while the host makes the masks
  return step.ticket;
}

void DeviceRunner::sample(Ticket ticket, const SampleArgs& args) {
  HEDDLE_CHECK_OP(ticket.number, ==, n_sampled_);
  Step& current = step(ticket);
  HEDDLE_CHECK(current.state == State::forwarded);
  ++n_sampled_;
  current.state = State::sampled;
  HEDDLE_CHECK_OP(args.masks.size(), ==, current.masked.size());
  for (size_t i = 0; i < args.masks.size(); ++i) {
    HEDDLE_CHECK_OP(args.masks[i].size(), ==, (model().config().vocab_size + 31) / 32);
    current.sample_rows[current.masked[i]].mask = args.masks[i].data();
  }

  device::Queue& queue = device_->queue();
  if ((options_.hash_logits || options_.all_logits_rows > 0) && current.logits.rows > 0) {
    current.host_logits.resize(size_t{current.logits.rows} * current.logits.cols);
    device_->copy_to_host(queue, current.logits, current.host_logits.data());  // before sampling changes them in place
  } else {
    current.host_logits.clear();
  }
  if (!current.sample_rows.empty()) device_->sample(queue, current.logits, current.sample_rows, current.sampled);
  current.begin = std::max(Monotonic::now(), last_end_);
  queue.on_done([this, at = &current] { finish(*at); });
}

void DeviceRunner::finish(Step& step) {
  HEDDLE_CHECK(step.state == State::sampled);
  step.state = State::done;
  step.begin =
      std::max(step.begin, last_end_);  // in order: it began when it was handed over and the one before had ended
  step.end = last_end_ = Monotonic::now();
  step.results.assign(step.plan->seqs.size(), {});
  size_t sampled = 0;
  for (size_t i = 0; i < step.results.size(); ++i) {
    if (step.plan->seqs[i].outputs != sched::Outputs::sample) continue;
    SeqResult& result = step.results[i];
    result.token = step.sampled[sampled].token;
    result.nan = step.sampled[sampled].nan;
    if (options_.hash_logits) {
      const size_t cols = step.logits.cols;
      result.logits_hash = hash_row({step.host_logits.data() + step.sample_rows[sampled].logits_row * cols, cols});
    }
    ++sampled;
  }
  done_.cancel();
}

boost::asio::awaitable<Result<StepResult, Fault>> DeviceRunner::wait(Ticket ticket) {
  HEDDLE_CHECK_OP(ticket.number, ==, n_waited_);
  Step& current = step(ticket);
  while (current.state != State::done) {
    HEDDLE_CHECK(current.state == State::sampled);
    co_await done_.async_wait(boost::asio::as_tuple(boost::asio::use_awaitable));
  }
  ++n_waited_;
  current.state = State::free;
  co_return StepResult{current.results, current.begin, current.end};
}

void DeviceRunner::sleep(SleepLevel level) {
  HEDDLE_CHECK_OP(n_launched_, ==, n_waited_);
  if (level == SleepLevel::pause) return;
  if (!asleep_) {
    asleep_ = true;
    device_->release_memory();
    weights_->release();
  }
  if (level == SleepLevel::discard) weights_->drop_file_cache();
}

boost::asio::awaitable<Result<void>> DeviceRunner::wake_up() {
  if (!asleep_) co_return Result<void>{};
  auto acquired = co_await weights_->acquire();
  if (acquired) asleep_ = false;
  co_return acquired;
}

std::span<const float> DeviceRunner::logits(Ticket ticket) const { return step(ticket).host_logits; }

uint64_t hash_row(std::span<const float> row) {
  // Multiply and fold over 64-bit words (the mixing step of wyhash, Wang Yi): any changed bit changes the result.
  uint64_t hash = row.size();
  const auto mix = [&hash](uint64_t word) {
    const auto product = static_cast<unsigned __int128>(hash ^ word ^ 0x9E3779B97F4A7C15u) * 0xD6E8FEB86659FD93u;
    hash = static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64) ^ (hash << 1);
  };
  for (const float value : row) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    mix(bits);
  }
  return hash;
}

}  // namespace heddle::engine
