#pragma once
// From options to a model that can compute, in two steps: prepare() reads headers only and says whether it will fit;
// load() reads the weights. Then make_engine() joins model, tokenizer and scheduler; with data parallel engines,
// make_runners() gives a runner for each, which share the weights, and engine_config() what the engines have in common.
// Used by every command that runs a model.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "app/memory_plan.h"
#include "app/options.h"
#include "base/loop.h"
#include "base/result.h"
#include "cpu/cpu_device.h"
#include "engine/engine.h"
#include "model/config.h"
#include "model/gguf_set.h"
#include "model/model.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace heddle::app {

// Filled from the files' headers; nothing large has been read.
struct PreparedModel {
  model::GgufSet files;
  model::ModelConfig config;
  std::unique_ptr<cpu::Team> team;         // outlives the engine that the device goes into
  std::shared_ptr<cpu::CpuDevice> device;  // weights are loaded through it; runners compute on siblings
  Loop* loop = nullptr;
  cpu::Isa isa = cpu::Isa::scalar;
  MemoryPlan plan;  // of --data-parallel-size engines
  uint32_t pipeline_depth = 1;
};

struct LoadedModel {
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::shared_ptr<const text::ChatTemplate> chat_template;  // null: none that works, see template_problem
  std::string template_problem;
  std::unique_ptr<model::Model> model;
};

// On the loop thread (the device belongs to it).
Result<PreparedModel> prepare_model(const ModelOptions& options, Loop& loop);

// On any one thread; `phase` is called with what comes next, from that thread.
Result<LoadedModel> load_model(const ModelOptions& options, PreparedModel& prepared,
                               const std::function<void(const char*)>& phase);

// On the loop thread. Takes the model. The runners sleep and wake together or apart: the last to sleep gives the
// weights back, and the first to wake reads them from the same path again. It is an error if the file went or holds a
// model of another shape.
std::vector<std::unique_ptr<engine::ModelRunner>> make_runners(const ModelOptions& options, PreparedModel& prepared,
                                                               LoadedModel& loaded, boost::asio::io_context& context,
                                                               uint32_t n);
engine::Config engine_config(const ModelOptions& options, const PreparedModel& prepared);

// One engine.
std::unique_ptr<engine::Engine> make_engine(const ModelOptions& options, PreparedModel& prepared, LoadedModel& loaded,
                                            boost::asio::io_context& context);

}  // namespace heddle::app
