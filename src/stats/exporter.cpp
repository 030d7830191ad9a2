#include "stats/exporter.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <utility>
#include <vector>

#include "stats/process.h"

namespace heddle::stats {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

class Families {
 public:
  // Starts a family; the values that follow belong to it.
  Families& family(std::string name, std::string help, MetricType type) {
    MetricFamily family;
    family.name = std::move(name);
    family.help = std::move(help);
    family.type = type;
    families_.push_back(std::move(family));
    return *this;
  }
  Families& value(double value, std::vector<ClientMetric::Label> labels) {
    ClientMetric metric;
    metric.label = std::move(labels);
    if (families_.back().type == MetricType::Counter)
      metric.counter.value = value;
    else
      metric.gauge.value = value;
    families_.back().metric.push_back(std::move(metric));
    return *this;
  }
  std::string text() const { return prometheus::TextSerializer{}.Serialize(families_); }

 private:
  std::vector<MetricFamily> families_;
};

double real(uint64_t v) { return static_cast<double>(v); }

}  // namespace

Exporter::Exporter(ExporterConfig config, ReadEngine engine, ReadNet net)
    : config_(std::move(config)), engine_(std::move(engine)), net_(std::move(net)) {}

std::string Exporter::text() const {
  const EngineSnapshot engine = engine_();
  const NetSnapshot net = net_();
  const ProcessSnapshot process = read_process();
  // Labels sorted by name, as the Python client writes them.
  const auto labels = [&](std::vector<ClientMetric::Label> extra = {}) {
    std::vector<ClientMetric::Label> all{{"engine", "0"}};
    all.insert(all.end(), extra.begin(), extra.end());
    all.push_back({"model_name", config_.model_name});
    return all;
  };
  const MetricType gauge = MetricType::Gauge;
  const MetricType counter = MetricType::Counter;
  const double usage = engine.blocks_total == 0 ? 0.0 : real(engine.blocks_held) / real(engine.blocks_total);
  Families out;
  out.family("vllm:num_requests_running", "Requests with a place in the running list.", gauge)
      .value(engine.running, labels());
  out.family("vllm:num_requests_waiting", "Requests that wait to be scheduled, preempted ones included.", gauge)
      .value(engine.waiting, labels());
  out.family("vllm:kv_cache_usage_perc",
             "Share of KV blocks held by requests, 0 to 1. Cached blocks that nobody holds count as free.", gauge)
      .value(usage, labels());
  // Names of older vLLM versions, which the production-stack router still reads.
  out.family("vllm:gpu_cache_usage_perc", "Same as vllm:kv_cache_usage_perc, for older readers.", gauge)
      .value(usage, labels());
  out.family("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache, at first admission.",
             counter)
      .value(real(engine.prefix_queries), labels());
  out.family("vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache, at first admission.", counter)
      .value(real(engine.prefix_hits), labels());
  out.family("vllm:gpu_prefix_cache_queries_total", "Same as vllm:prefix_cache_queries_total, for older readers.",
             counter)
      .value(real(engine.prefix_queries), labels());
  out.family("vllm:gpu_prefix_cache_hits_total", "Same as vllm:prefix_cache_hits_total, for older readers.", counter)
      .value(real(engine.prefix_hits), labels());
  out.family("vllm:num_preemptions_total", "Requests that lost their blocks to another and were computed again.",
             counter)
      .value(real(engine.preemptions), labels());
  out.family("vllm:prompt_tokens_total", "Prompt tokens of requests whose first token came, cached ones included.",
             counter)
      .value(real(engine.prompt_tokens), labels());
  out.family("vllm:generation_tokens_total", "Generated tokens.", counter)
      .value(real(engine.generation_tokens), labels());
  out.family("vllm:request_success_total", "Finished requests, by reason; aborts include clients that went away.",
             counter)
      .value(real(engine.finished_stop), labels({{"finished_reason", "stop"}}))
      .value(real(engine.finished_length), labels({{"finished_reason", "length"}}))
      .value(real(engine.finished_abort), labels({{"finished_reason", "abort"}}))
      .value(real(engine.finished_error), labels({{"finished_reason", "error"}}))
      .value(0.0, labels({{"finished_reason", "repetition"}}));
  out.family("vllm:cache_config_info", "Settings of the KV cache, as labels.", gauge)
      .value(1.0, {{"block_size", std::to_string(config_.block_size)},
                   {"enable_prefix_caching", config_.enable_prefix_caching ? "True" : "False"},
                   {"engine", "0"},
                   {"num_gpu_blocks", std::to_string(config_.n_blocks)}});
  out.family("heddle:requests_submitted_total", "Requests that reached the engine's door.", counter)
      .value(real(engine.submitted), labels());
  out.family("heddle:requests_rejected_total", "Requests refused at the door.", counter)
      .value(real(engine.rejected), labels());
  out.family("heddle:discarded_tokens_total", "Rows computed past a stop that was learnt late; never delivered.",
             counter)
      .value(real(engine.discarded_tokens), labels());
  out.family("heddle:steps_total", "Steps committed.", counter).value(real(engine.steps), labels());
  out.family("heddle:steps_in_flight", "Steps launched and not yet committed.", gauge)
      .value(engine.in_flight, labels());
  out.family("heddle:kv_blocks", "KV blocks by state: held by requests, cached and unreferenced, or free.", gauge)
      .value(engine.blocks_cached, labels({{"state", "cached"}}))
      .value(engine.blocks_free, labels({{"state", "free"}}))
      .value(engine.blocks_held, labels({{"state", "held"}}));
  out.family("heddle:connections_open", "Open client connections.", gauge).value(real(net.connections_open), {});
  out.family("heddle:connections_accepted_total", "Client connections accepted.", counter)
      .value(real(net.connections_accepted), {});
  out.family("process_cpu_seconds_total", "User and system CPU time, in seconds.", counter)
      .value(process.cpu_seconds, {});
  out.family("process_resident_memory_bytes", "Resident memory, in bytes.", gauge)
      .value(real(process.resident_bytes), {});
  out.family("process_virtual_memory_bytes", "Virtual memory, in bytes.", gauge).value(real(process.virtual_bytes), {});
  out.family("process_start_time_seconds", "Start of the process, Unix time in seconds.", gauge)
      .value(process.start_time, {});
  out.family("process_open_fds", "Open file descriptors.", gauge).value(real(process.open_fds), {});
  out.family("process_max_fds", "Limit of open file descriptors.", gauge).value(real(process.max_fds), {});
  return out.text();
}

}  // namespace heddle::stats
