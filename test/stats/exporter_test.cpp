#include "stats/exporter.h"

#include <doctest/doctest.h>

#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace heddle::stats {
namespace {

// The text as a reader sees it: series to value, family to type, in order.
struct Scrape {
  std::map<std::string, double> values;
  std::vector<std::string> series;  // in order
  std::map<std::string, std::string> types;
  std::map<std::string, int> n_types;

  explicit Scrape(const std::string& text) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("# TYPE ")) {
        const size_t space = line.find(' ', 7);
        const std::string name = line.substr(7, space - 7);
        types[name] = line.substr(space + 1);
        ++n_types[name];
      } else if (!line.starts_with("#")) {
        const size_t space = line.rfind(' ');
        REQUIRE(space != std::string::npos);
        series.push_back(line.substr(0, space));
        CHECK(values.emplace(series.back(), std::stod(line.substr(space + 1))).second);
      }
    }
  }
  double operator[](const std::string& name) const {
    CAPTURE(name);
    const auto found = values.find(name);
    REQUIRE(found != values.end());
    return found->second;
  }
};

// name{engine="rank",model_name="m",label}
std::string of(const std::string& name, int rank, const std::string& label = "") {
  const std::string engine = "engine=\"" + std::to_string(rank) + "\"", model = "model_name=\"m\"";
  if (label.empty()) return name + "{" + engine + "," + model + "}";
  return name + "{" + engine + "," + (label < model ? label + "," + model : model + "," + label) + "}";
}

Exporter exporter(const GroupSnapshot& group, uint32_t n_engines) {
  return Exporter(
      {.model_name = "m", .n_engines = n_engines, .n_blocks = 64}, [group] { return group; },
      [] {
        return NetSnapshot{3, 7};
      });
}

TEST_CASE("zero_series: before there is an engine, every engine's series of a closed label set is there at 0") {
  const Scrape scrape(exporter({}, 2).text());
  for (int rank : {0, 1}) {
    CAPTURE(rank);
    for (const char* reason : {"stop", "length", "abort", "error", "repetition"})
      CHECK(scrape[of("vllm:request_success_total", rank, std::string("finished_reason=\"") + reason + "\"")] == 0);
    for (const char* reason : {"capacity", "deferred"})
      CHECK(scrape[of("vllm:num_requests_waiting_by_reason", rank, std::string("reason=\"") + reason + "\"")] == 0);
    for (const char* state : {"queued", "running"})
      CHECK(scrape[of("heddle:deadline_exceeded_total", rank, std::string("state=\"") + state + "\"")] == 0);
    for (const char* name : {"heddle:forked_sequences_total", "heddle:kv_blocks_copied_total",
                             "heddle:kv_blocks_merged_total", "heddle:prefix_cache_resets_total",
                             "heddle:parked_sessions", "heddle:sessions_evicted_total", "heddle:dummy_steps_total"})
      CHECK(scrape[of(name, rank)] == 0);
    CHECK(scrape[of("vllm:engine_sleep_state", rank, "sleep_state=\"awake\"")] == 1);
    CHECK(scrape[of("vllm:engine_sleep_state", rank, "sleep_state=\"weights_offloaded\"")] == 0);
    CHECK(scrape[of("vllm:engine_sleep_state", rank, "sleep_state=\"discard_all\"")] == 0);
  }
  CHECK(scrape["vllm:admission_rejections_total{model_name=\"m\",reason=\"max_num_queued_reqs\"}"] == 0);
  CHECK(scrape["vllm:admission_rejections_total{model_name=\"m\",reason=\"max_num_queued_tokens\"}"] == 0);
}

TEST_CASE("per_engine_labels: each engine's numbers stand under its rank, each family once") {
  GroupSnapshot group;
  group.engines.resize(3);
  for (uint32_t rank = 0; rank < 3; ++rank) {
    EngineSnapshot& engine = group.engines[rank];
    engine.running = 10 + rank;
    engine.waiting = 5 + rank;
    engine.deferred = 2;
    engine.blocks_total = 100;
    engine.blocks_held = 10 * rank;
    engine.finished_stop = 1000 + rank;
    engine.dummy_steps = 7 * rank;
  }
  group.refused_reqs = 4;
  group.refused_tokens = 6;
  const Scrape scrape(exporter(group, 3).text());
  for (int rank : {0, 1, 2}) {
    CHECK(scrape[of("vllm:num_requests_running", rank)] == 10 + rank);
    CHECK(scrape[of("vllm:num_requests_waiting", rank)] == 5 + rank);
    CHECK(scrape[of("vllm:num_requests_waiting_by_reason", rank, "reason=\"capacity\"")] == 3 + rank);
    CHECK(scrape[of("vllm:num_requests_waiting_by_reason", rank, "reason=\"deferred\"")] == 2);
    CHECK(scrape[of("vllm:kv_cache_usage_perc", rank)] == doctest::Approx(0.1 * rank));
    CHECK(scrape[of("vllm:request_success_total", rank, "finished_reason=\"stop\"")] == 1000 + rank);
    CHECK(scrape[of("heddle:dummy_steps_total", rank)] == 7 * rank);
    CHECK(scrape["vllm:cache_config_info{block_size=\"16\",enable_prefix_caching=\"True\",engine=\"" +
                 std::to_string(rank) + "\",num_gpu_blocks=\"64\"}"] == 1);
  }
  CHECK(scrape["vllm:admission_rejections_total{model_name=\"m\",reason=\"max_num_queued_reqs\"}"] == 4);
  CHECK(scrape["vllm:admission_rejections_total{model_name=\"m\",reason=\"max_num_queued_tokens\"}"] == 6);
  CHECK(scrape["heddle:connections_open"] == 3);
  for (const auto& family : scrape.n_types) {
    CAPTURE(family.first);
    CHECK(family.second == 1);
  }
}

TEST_CASE("the first series of the endpoint picker's gauges is engine 0's") {
  GroupSnapshot group;
  group.engines.resize(2);
  const Scrape scrape(exporter(group, 2).text());
  std::map<std::string, std::string> first;
  for (const std::string& series : scrape.series) first.emplace(series.substr(0, series.find('{')), series);
  for (const char* name : {"vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"})
    CHECK(first.at(name) == of(name, 0));
}

TEST_CASE("sleep_state: at most one is 1, and at level 0 none is") {
  struct Row {
    SleepState state;
    const char* on;  // null: none
  };
  for (const Row& row :
       {Row{SleepState::awake, "awake"}, Row{SleepState::paused, nullptr},
        Row{SleepState::weights_offloaded, "weights_offloaded"}, Row{SleepState::discard_all, "discard_all"}}) {
    GroupSnapshot group;
    group.engines.resize(1);
    group.engines[0].sleep = row.state;
    const Scrape scrape(exporter(group, 1).text());
    for (const std::string state : {"awake", "weights_offloaded", "discard_all"}) {
      CAPTURE(state);
      CHECK(scrape[of("vllm:engine_sleep_state", 0, "sleep_state=\"" + state + "\"")] ==
            (row.on != nullptr && state == row.on ? 1 : 0));
    }
  }
}

TEST_CASE("counters end in _total and are typed so, gauges are not") {
  const Scrape scrape(exporter({}, 1).text());
  CHECK(scrape.types.size() > 30);
  for (const auto& family : scrape.types) {
    CAPTURE(family.first);
    CHECK((family.second == "counter") == family.first.ends_with("_total"));
  }
}

}  // namespace
}  // namespace heddle::stats
