#include "stats/engine_families.h"

namespace heddle::stats {
namespace {

using Snapshot = EngineSnapshot;
constexpr auto kGauge = EngineFamily::Type::gauge;
constexpr auto kCounter = EngineFamily::Type::counter;

template <auto kMember>
double field(const Snapshot& engine) {
  return static_cast<double>(engine.*kMember);
}

double usage(const Snapshot& engine) {
  return engine.blocks_total == 0 ? 0.0 : static_cast<double>(engine.blocks_held) / engine.blocks_total;
}

double waiting_for_room(const Snapshot& engine) { return engine.waiting - engine.deferred; }

template <SleepState kState>
double sleeps(const Snapshot& engine) {
  return engine.sleep == kState ? 1 : 0;
}

double none(const Snapshot&) { return 0; }

// A family of one series for each engine.
EngineFamily one(EngineFamily::Type type, const char* name, const char* help, double (*read)(const Snapshot&)) {
  return {type, name, help, nullptr, {{nullptr, read}}};
}

std::vector<EngineFamily> make_families() {
  return {
      one(kGauge, "vllm:num_requests_running",
          "Sequences with a place in the running list. Not those that wait, preempted ones included.",
          field<&Snapshot::running>),
      one(kGauge, "vllm:num_requests_waiting",
          "Sequences that wait to be scheduled: preempted ones, deferred ones and parked sessions included.",
          field<&Snapshot::waiting>),
      {kGauge,
       "vllm:num_requests_waiting_by_reason",
       "The waiting ones: capacity waits for slots or KV blocks, deferred for anything else (a grammar, an image, a "
       "token "
       "in flight, a session's next input). They sum to vllm:num_requests_waiting.",
       "reason",
       {{"capacity", waiting_for_room}, {"deferred", field<&Snapshot::deferred>}}},
      {kGauge,
       "vllm:engine_sleep_state",
       "1 for the state the engine is in. A paused engine (sleep level 0) is in none of them.",
       "sleep_state",
       {{"awake", sleeps<SleepState::awake>},
        {"discard_all", sleeps<SleepState::discard_all>},
        {"weights_offloaded", sleeps<SleepState::weights_offloaded>}}},
      one(kGauge, "vllm:kv_cache_usage_perc",
          "Share of KV blocks held by sequences, 0 to 1. Cached blocks that nobody holds count as free.", usage),
      // Names of older vLLM versions, which the production-stack router still reads.
      one(kGauge, "vllm:gpu_cache_usage_perc", "Same as vllm:kv_cache_usage_perc, for older readers.", usage),
      one(kCounter, "vllm:prefix_cache_queries_total",
          "Prompt tokens looked up in the prefix cache, at first admission. Lookups after a preemption are not "
          "counted.",
          field<&Snapshot::prefix_queries>),
      one(kCounter, "vllm:prefix_cache_hits_total",
          "Prompt tokens found in the prefix cache, at first admission. Lookups after a preemption are not counted.",
          field<&Snapshot::prefix_hits>),
      one(kCounter, "vllm:gpu_prefix_cache_queries_total",
          "Same as vllm:prefix_cache_queries_total, for older readers.", field<&Snapshot::prefix_queries>),
      one(kCounter, "vllm:gpu_prefix_cache_hits_total", "Same as vllm:prefix_cache_hits_total, for older readers.",
          field<&Snapshot::prefix_hits>),
      one(kCounter, "vllm:num_preemptions_total",
          "Sequences that lost their KV blocks, to another one, a reset or sleep, and were computed again. Parked "
          "sessions that did are counted in heddle:sessions_evicted_total.",
          field<&Snapshot::preemptions>),
      one(kCounter, "vllm:prompt_tokens_total",
          "Prompt tokens of sequences whose first token came, cached ones included.", field<&Snapshot::prompt_tokens>),
      one(kCounter, "vllm:generation_tokens_total",
          "Generated tokens, the end token included. Rows computed past a stop are not.",
          field<&Snapshot::generation_tokens>),
      {kCounter,
       "vllm:request_success_total",
       "Finished sequences, by reason; a session counts once a turn. Aborts include clients that went away and missed "
       "deadlines; requests refused at the door are not here.",
       "finished_reason",
       {{"stop", field<&Snapshot::finished_stop>},
        {"length", field<&Snapshot::finished_length>},
        {"abort", field<&Snapshot::finished_abort>},
        {"error", field<&Snapshot::finished_error>},
        {"repetition", none}}},
      one(kCounter, "heddle:requests_submitted_total",
          "Sequences that reached the engine's door: finished, live and rejected ones. Requests refused by the queue's "
          "limits did not (vllm:admission_rejections_total).",
          field<&Snapshot::submitted>),
      one(kCounter, "heddle:requests_rejected_total", "Sequences refused at the engine's door.",
          field<&Snapshot::rejected>),
      {kCounter,
       "heddle:deadline_exceeded_total",
       "Sequences ended since their client's time was over, before they were first scheduled (queued) or after. They "
       "are "
       "also in vllm:request_success_total as abort.",
       "state",
       {{"queued", field<&Snapshot::deadlines_queued>}, {"running", field<&Snapshot::deadlines_running>}}},
      one(kGauge, "heddle:parked_sessions",
          "Sessions between two turns: they hold KV and compute nothing. In the deferred ones too.",
          field<&Snapshot::parked_sessions>),
      one(kCounter, "heddle:sessions_evicted_total",
          "Parked sessions whose KV blocks went to others; their next turn computes them again.",
          field<&Snapshot::evicted_sessions>),
      one(kCounter, "heddle:forked_sequences_total",
          "Sequences that took over a sibling's computed prompt (n > 1), the first of the n not included.",
          field<&Snapshot::forks>),
      one(kCounter, "heddle:discarded_tokens_total", "Rows computed past a stop that was learnt late; never delivered.",
          field<&Snapshot::discarded_tokens>),
      one(kCounter, "heddle:steps_total", "Steps committed. Failed and dummy steps are not.", field<&Snapshot::steps>),
      one(kCounter, "heddle:dummy_steps_total",
          "Steps without rows, taken in a lockstep group while another engine had work.",
          field<&Snapshot::dummy_steps>),
      one(kGauge, "heddle:steps_in_flight", "Steps launched and not yet committed.", field<&Snapshot::in_flight>),
      {kGauge,
       "heddle:kv_blocks",
       "KV blocks by state: held by sequences, cached and unreferenced, or free.",
       "state",
       {{"cached", field<&Snapshot::blocks_cached>},
        {"free", field<&Snapshot::blocks_free>},
        {"held", field<&Snapshot::blocks_held>}}},
      one(kCounter, "heddle:kv_blocks_copied_total", "KV blocks copied before a sequence wrote into a shared one.",
          field<&Snapshot::copied_blocks>),
      one(kCounter, "heddle:kv_blocks_merged_total",
          "KV blocks given back since an equal one was there already when they were computed.",
          field<&Snapshot::merged_blocks>),
      one(kCounter, "heddle:prefix_cache_resets_total", "Times that the prefix cache was emptied on request.",
          field<&Snapshot::cache_resets>),
  };
}

}  // namespace

std::span<const EngineFamily> engine_families() {
  static const std::vector<EngineFamily> families = make_families();
  return families;
}

}  // namespace heddle::stats
