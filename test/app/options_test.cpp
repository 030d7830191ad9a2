#include "app/options.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

using namespace heddle;
using namespace heddle::app;

namespace {

// A parse of `heddle serve ARGUMENTS`: the options, or the line that a person would see.
struct Parsed {
  ServeOptions options;
  std::string config_file;
  std::string problem;
  CLI::App command{"serve"};

  explicit Parsed(std::vector<std::string> arguments, const std::string& toml = "") {
    add_model_options(command, options.model, config_file);
    add_serve_options(command, options);
    std::reverse(arguments.begin(), arguments.end());
    try {
      command.parse(arguments);
    } catch (const CLI::ParseError& error) {
      problem = error.what();
      return;
    }
    if (toml.empty()) return;
    const std::filesystem::path path =
        std::filesystem::temp_directory_path() / fmt::format("heddle-options-{}.toml", ::getpid());
    std::ofstream(path) << toml;
    if (Result<void> applied = apply_config_file(command, path.string()); !applied) problem = applied.error().message;
    std::filesystem::remove(path);
  }
};

}  // namespace

TEST_CASE("the defaults limit nothing and change no order") {
  const Parsed parsed({"m.gguf"});
  CHECK(parsed.problem.empty());
  const ModelOptions& model = parsed.options.model;
  CHECK(model.scheduling_policy == sched::PolicyKind::fcfs);
  CHECK(model.tenant_weights.empty());
  CHECK(model.watermark == 0);
  CHECK(model.max_long_partial_prefills == 0);
  CHECK(model.data_parallel_size == 1);
  CHECK(parsed.options.max_num_queued_reqs == 0);
  CHECK(parsed.options.max_num_queued_tokens == 0);
  CHECK(parsed.options.queue_full_status == 503);
  CHECK_FALSE(parsed.options.enable_admin_endpoints);
}

TEST_CASE("every flag of the scheduler and the queue is taken") {
  const Parsed parsed({"m.gguf",
                       "--scheduling-policy",
                       "fair",
                       "--fair-quantum",
                       "64",
                       "--tenant-weight",
                       "key1=4",
                       "--tenant-weight=a=b=2",
                       "--watermark",
                       "0.05",
                       "--long-prefill-token-threshold",
                       "1K",
                       "--max-long-partial-prefills",
                       "2",
                       "--max-num-queued-reqs",
                       "100",
                       "--max-num-queued-tokens",
                       "1M",
                       "--queue-full-status",
                       "429",
                       "--pipeline-depth",
                       "8",
                       "--data-parallel-size",
                       "16",
                       "--enable-admin-endpoints"});
  REQUIRE(parsed.problem == "");
  const ModelOptions& model = parsed.options.model;
  CHECK(model.scheduling_policy == sched::PolicyKind::fair);
  CHECK(model.fair_quantum == 64);
  REQUIRE(model.tenant_weights.size() == 2);
  CHECK(model.tenant_weights.at("key1") == 4);
  CHECK(model.tenant_weights.at("a=b") == 2);
  CHECK(model.watermark == doctest::Approx(0.05));
  CHECK(model.long_prefill_token_threshold == 1024);
  CHECK(model.max_long_partial_prefills == 2);
  CHECK(model.pipeline_depth == 8);
  CHECK(model.data_parallel_size == 16);
  CHECK(parsed.options.max_num_queued_reqs == 100);
  CHECK(parsed.options.max_num_queued_tokens == 1048576);
  CHECK(parsed.options.queue_full_status == 429);
  CHECK(parsed.options.enable_admin_endpoints);
}

TEST_CASE("a flag out of range is refused by one line that names it") {
  const struct {
    const char* flag;
    const char* value;
  } table[] = {
      {"--scheduling-policy", "lifo"},
      {"--scheduling-policy", ""},
      {"--fair-quantum", "0"},
      {"--fair-quantum", "-1"},
      {"--tenant-weight", "key1"},
      {"--tenant-weight", "=3"},
      {"--tenant-weight", "key1=0"},
      {"--tenant-weight", "key1=1.5"},
      {"--tenant-weight", "key1=1001"},
      {"--watermark", "-0.1"},
      {"--watermark", "1"},
      {"--watermark", "x"},
      {"--max-long-partial-prefills", "-1"},
      {"--long-prefill-token-threshold", "x"},
      {"--max-num-queued-reqs", "-1"},
      {"--max-num-queued-tokens", "many"},
      {"--queue-full-status", "500"},
      {"--queue-full-status", "200"},
      {"--pipeline-depth", "9"},
      {"--pipeline-depth", "-1"},
      {"--data-parallel-size", "0"},
      {"--data-parallel-size", "17"},
  };
  for (const auto& bad : table) {
    CAPTURE(bad.flag);
    CAPTURE(bad.value);
    const Parsed parsed({"m.gguf", fmt::format("{}={}", bad.flag, bad.value)});
    CHECK(parsed.problem.find(bad.flag) != std::string::npos);
    CHECK(parsed.problem.find('\n') == std::string::npos);
  }
  const Parsed twice({"m.gguf", "--tenant-weight", "a=1", "--tenant-weight", "a=2"});
  CHECK(twice.problem.find("--tenant-weight") != std::string::npos);
}

TEST_CASE("the configuration file takes the new keys, lists too, and a flag wins") {
  const char* toml = R"(
    scheduling-policy = "fair"
    tenant_weight = ["key1=4", "key2=2"]
    watermark = 0.1
    max-num-queued-reqs = 7
    queue-full-status = 429
    enable-admin-endpoints = true
  )";
  const Parsed parsed({"m.gguf", "--max-num-queued-reqs", "9"}, toml);
  REQUIRE(parsed.problem == "");
  CHECK(parsed.options.model.scheduling_policy == sched::PolicyKind::fair);
  CHECK(parsed.options.model.tenant_weights.at("key2") == 2);
  CHECK(parsed.options.model.watermark == doctest::Approx(0.1));
  CHECK(parsed.options.max_num_queued_reqs == 9);
  CHECK(parsed.options.queue_full_status == 429);
  CHECK(parsed.options.enable_admin_endpoints);
  for (const char* bad : {"tenant-weight = [\"key1\"]", "watermark = 2", "queue-full-status = 404"}) {
    CAPTURE(bad);
    CHECK_FALSE(Parsed({"m.gguf"}, bad).problem.empty());
  }
}
