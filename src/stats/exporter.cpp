#include "stats/exporter.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <utility>

#include "stats/engine_families.h"
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

constexpr MetricType kGauge = MetricType::Gauge;
constexpr MetricType kCounter = MetricType::Counter;

double real(uint64_t v) { return static_cast<double>(v); }

// Each family once, with every engine's series behind each other: readers that take the first series get engine 0.
void add_engines(Families& out, const std::string& model_name, const std::vector<EngineSnapshot>& engines) {
  for (const EngineFamily& family : engine_families()) {
    out.family(family.name, family.help, family.type == EngineFamily::Type::gauge ? kGauge : kCounter);
    for (size_t rank = 0; rank < engines.size(); ++rank) {
      for (const EngineSeries& series : family.series) {
        std::vector<ClientMetric::Label> labels{{"engine", std::to_string(rank)}, {"model_name", model_name}};
        if (family.label != nullptr) labels.push_back({family.label, series.label});
        std::sort(labels.begin(), labels.end());  // by name, as the Python client writes them
        out.value(series.read(engines[rank]), std::move(labels));
      }
    }
  }
}

void add_process(Families& out) {
  const ProcessSnapshot process = read_process();
  out.family("process_cpu_seconds_total", "User and system CPU time, in seconds.", kCounter)
      .value(process.cpu_seconds, {});
  out.family("process_resident_memory_bytes", "Resident memory, in bytes.", kGauge)
      .value(real(process.resident_bytes), {});
  out.family("process_virtual_memory_bytes", "Virtual memory, in bytes.", kGauge)
      .value(real(process.virtual_bytes), {});
  out.family("process_start_time_seconds", "Start of the process, Unix time in seconds.", kGauge)
      .value(process.start_time, {});
  out.family("process_open_fds", "Open file descriptors.", kGauge).value(real(process.open_fds), {});
  out.family("process_max_fds", "Limit of open file descriptors.", kGauge).value(real(process.max_fds), {});
}

}  // namespace

Exporter::Exporter(ExporterConfig config, ReadEngines engines, ReadNet net)
    : config_(std::move(config)), engines_(std::move(engines)), net_(std::move(net)) {}

std::string Exporter::text() const {
  GroupSnapshot group = engines_();
  group.engines.resize(config_.n_engines);  // while the model loads there are none, and their series are at 0
  const NetSnapshot net = net_();
  Families out;
  add_engines(out, config_.model_name, group.engines);
  out.family("vllm:cache_config_info", "Settings of the KV cache, as labels.", kGauge);
  for (uint32_t rank = 0; rank < config_.n_engines; ++rank)
    out.value(1.0, {{"block_size", std::to_string(config_.block_size)},
                    {"enable_prefix_caching", config_.enable_prefix_caching ? "True" : "False"},
                    {"engine", std::to_string(rank)},
                    {"num_gpu_blocks", std::to_string(config_.n_blocks)}});
  // The queue's limits hold over all engines, so there is no engine to name.
  out.family(
         "vllm:admission_rejections_total",
         "Requests refused by the limits of the queue, before any engine saw them; a request counts once whatever its "
         "n and its number of prompts.",
         kCounter)
      .value(real(group.refused_reqs), {{"model_name", config_.model_name}, {"reason", "max_num_queued_reqs"}})
      .value(real(group.refused_tokens), {{"model_name", config_.model_name}, {"reason", "max_num_queued_tokens"}});
  out.family("heddle:connections_open", "Open client connections.", kGauge).value(real(net.connections_open), {});
  out.family("heddle:connections_accepted_total", "Client connections accepted.", kCounter)
      .value(real(net.connections_accepted), {});
  add_process(out);
  return out.text();
}

}  // namespace heddle::stats
