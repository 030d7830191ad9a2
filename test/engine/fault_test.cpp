// Device faults at the step boundary: plans in flight are taken back, those concerned end with an error, the rest is
// computed again and gives the same tokens.
#include "engine_fixture.h"

namespace heddle::engine {
namespace {

// Fails the launch with this number, once.
auto fault_at(uint64_t launch, Fault::Scope scope, SeqId guilty = {}) {
  return [launch, scope, guilty, n = uint64_t{0}](const sched::StepPlan&) mutable -> std::optional<Fault> {
    if (n++ != launch) return std::nullopt;
    return Fault{{}, "the device said no", scope, guilty};
  };
}

TEST_CASE("a fault of one sequence ends that one; the others lose nothing and repeat nothing") {
  for (const uint32_t depth : {1u, 2u, 4u}) {
    CAPTURE(depth);
    EngineBench bench(depth);
    bench.stub.fault = fault_at(5, Fault::Scope::sequence, SeqId(2));
    const auto a = bench.submit(make_request("a", iota_prompt(20), 12));
    const auto b = bench.submit(make_request("b", iota_prompt(21), 12));
    const auto c = bench.submit(make_request("c", iota_prompt(22), 12));
    bench.finish();
    CHECK(b->reason() == FinishReason::error);
    CHECK(b->only().finish->message == "the device said no");
    CHECK(b->only().tokens.size() == 5);
    CHECK(a->only().tokens == bench.expected(iota_prompt(20), 12));
    CHECK(c->only().tokens == bench.expected(iota_prompt(22), 12));
    CHECK(bench.engine->healthy());
    CHECK(bench.engine->snapshot().generation_tokens == 12 + 5 + 12);
  }
}

TEST_CASE("a fault of unknown origin ends every sequence in flight; those that wait go on") {
  EngineBench bench(2);
  bench.config.scheduler.max_num_seqs = 2;
  bench.stub.fault = fault_at(3, Fault::Scope::steps);
  const auto a = bench.submit(make_request("a", iota_prompt(4), 12));
  const auto b = bench.submit(make_request("b", iota_prompt(4), 12));
  const auto c = bench.submit(make_request("c", iota_prompt(4), 12));
  bench.finish();
  CHECK(a->reason() == FinishReason::error);
  CHECK(b->reason() == FinishReason::error);
  CHECK(a->only().tokens == bench.expected(iota_prompt(4), 3));
  CHECK(c->only().tokens == bench.expected(iota_prompt(4), 12));
  CHECK(bench.engine->healthy());
  CHECK(bench.engine->snapshot().finished_error == 2);
}

TEST_CASE("a fault whose culprit is not in the voided steps ends them all, rather than trying for ever") {
  EngineBench bench(1);
  bench.stub.fault = [](const sched::StepPlan&) { return Fault{{}, "no", Fault::Scope::sequence, SeqId(99)}; };
  const auto a = bench.submit(make_request("a", iota_prompt(4), 12));
  bench.finish();
  CHECK(a->reason() == FinishReason::error);
}

TEST_CASE("a lost device ends all requests with an error, turns the engine unhealthy and closes the door") {
  EngineBench bench(3);
  bench.config.scheduler.max_num_seqs = 2;
  bench.stub.fault = fault_at(4, Fault::Scope::device);
  std::vector<std::shared_ptr<Recorder>> sinks;
  for (int i = 0; i < 4; ++i) sinks.push_back(bench.submit(make_request(fmt::format("{}", i), iota_prompt(4), 50)));
  bench.start();
  bench.io.poll();
  bench.io.restart();
  for (const auto& sink : sinks) CHECK(sink->reason() == FinishReason::error);
  CHECK_FALSE(bench.engine->healthy());
  const Refusal refusal = bench.refusal_of(make_request("late", iota_prompt(4), 5));
  CHECK(refusal.kind == Refusal::Kind::stopping);
  CHECK(refusal.message == "the engine is out of service: the device said no");
  bench.finish();
  CHECK(bench.trace->text("F") == "F4");
}

TEST_CASE("an abort in flight and a fault on the same step end the request once") {
  EngineBench bench(2);
  bench.stub.fault = fault_at(2, Fault::Scope::steps);
  const auto a = bench.submit(make_request("a", iota_prompt(4), 12));
  a->also = [&](const Delta& delta) {
    if (!delta.finish) bench.engine->abort("a");
  };
  bench.finish();
  CHECK(a->reason() == FinishReason::abort);
  CHECK(a->n_ends == 1);
}

}  // namespace
}  // namespace heddle::engine
