// `heddle serve MODEL`: the port opens at once, the model loads beside it, signals end it in two phases.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "app/commands.h"
#include "app/server_state.h"
#include "app/terminal.h"
#include "base/log.h"
#include "stats/process.h"

namespace heddle::app {
namespace asio = boost::asio;
namespace {

// What a stopped stream gets to deliver its last event after its requests were aborted.
constexpr auto kLastWords = std::chrono::milliseconds(300);

std::string file_fingerprint(const PreparedModel& prepared) {
  // The build and the model's shape; two servers with the same fingerprint give the same tokens for the same seed.
  const uint64_t shape =
      prepared.files.tensor_bytes() * 1000003u + prepared.config.n_layers * 131u + prepared.config.hidden;
  return fmt::format("heddle-" HEDDLE_VERSION "-{:08x}", static_cast<uint32_t>(shape ^ (shape >> 32)));
}

void log_access(const api::AccessRecord& record) {
  log::info("{} {} {} {} {:.1f} ms{}{}{} id={}", record.peer, record.method, record.path, record.status,
            record.seconds * 1e3, record.notes.empty() ? "" : " ", record.notes, record.gone ? " client gone" : "",
            record.id);
}

net::ServerOptions server_options() {
  net::ServerOptions options;
  options.access_log = log_access;
  return options;
}

std::vector<std::string> served_names(const ServeOptions& options) {
  return options.served_model_name.empty() ? std::vector<std::string>{options.model.model} : options.served_model_name;
}

net::Task<> run_engines(ServerState* state) {
  asio::awaitable<void> loops = state->engines->run();
  co_await asio::co_spawn(state->context, std::move(loops), asio::use_awaitable_t<net::Executor>{});
}

std::unique_ptr<engine::EngineGroup> make_engines(ServerState& state, PreparedModel& prepared, LoadedModel& loaded) {
  const ServeOptions& options = state.options;
  const engine::Config config = engine_config(options.model, prepared);
  std::vector<std::unique_ptr<engine::Engine>> engines;
  for (auto& runner : make_runners(options.model, prepared, loaded, state.context, options.model.data_parallel_size))
    engines.push_back(std::make_unique<engine::Engine>(config, std::move(runner), loaded.tokenizer));
  engine::GroupOptions group;
  group.limits = {options.max_num_queued_reqs, options.max_num_queued_tokens};
  group.lockstep = options.data_parallel_lockstep;
  group.sync_interval = options.data_parallel_sync_interval;
  return std::make_unique<engine::EngineGroup>(std::move(engines), group);
}

stats::GroupSnapshot read_engines(const engine::EngineGroup* engines) {
  if (engines == nullptr) return {};
  return {engines->snapshots(), engines->n_refused_reqs(), engines->n_refused_tokens()};
}

// No new work; what is under way gets its grace time, then is aborted and told so; then everything ends.
net::Task<> stop_server(ServerState* state) {
  const auto grace =
      std::chrono::duration_cast<Monotonic::duration>(std::chrono::duration<double>(state->options.shutdown_timeout));
  const MonotonicTime deadline = Monotonic::now() + grace;
  net::Timer abort_timer(state->context, deadline);
  if (state->engines != nullptr) {
    state->engines->stop();
    abort_timer.async_wait([state](const net::ErrorCode& error) {
      if (!error) state->engines->abort_all();
    });
  }
  co_await state->server.stop(deadline + kLastWords);
  abort_timer.cancel();
  if (state->engines != nullptr) state->engines->abort_all();
  co_await state->working.join();
  state->signals.cancel();
}

// Loading has ended, one way or the other: on the loop.
void on_loaded(ServerState& state, PreparedModel& prepared, Result<LoadedModel> loaded) {
  if (!loaded) {
    fail_command(loaded.error().message);
    state.exit_code = 1;
    state.stopping.spawn(stop_server(&state));
    return;
  }
  state.engines = make_engines(state, prepared, *loaded);
  if (!loaded->template_problem.empty()) log::warn("{}", loaded->template_problem);
  api::ServiceConfig config;
  config.served_names = state.names;
  config.root = state.options.model.model;
  config.fingerprint = file_fingerprint(prepared);
  config.max_model_len = prepared.plan.max_model_len;
  config.seed = state.options.model.seed;
  config.created =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  config.terms = {state.options.model.scheduling_policy, state.options.model.data_parallel_size};
  config.queue_full_status = state.options.queue_full_status;
  state.working.spawn(run_engines(&state));
  state.service = std::make_unique<api::Service>(config, loaded->tokenizer, loaded->chat_template,
                                                 loaded->template_problem, *state.engines, state.offload);
  state.phase = "ready";
  log::info("ready after {:.3f} s, {:.1f} MiB resident", seconds(Monotonic::now() - state.started),
            static_cast<double>(stats::read_process().resident_bytes) / (1 << 20));
}

// The first signal starts the orderly stop, the second ends the process at once. While the model still loads there is
// nothing to drain, and the first one does.
void watch_signals(ServerState& state, bool asked) {
  state.signals.async_wait([&state, asked](const net::ErrorCode& error, int signal) {
    if (error) return;
    if (asked || state.service == nullptr) {
      log::flush_and_stop();
      std::_Exit(asked ? 128 + signal : 0);
    }
    log::info("stopping: no new requests; those under way get {} s", state.options.shutdown_timeout);
    state.stopping.spawn(stop_server(&state));
    watch_signals(state, true);
  });
}

}  // namespace

ServerState::ServerState(const ServeOptions& serve_options, asio::io_context& io, Loop& main_loop)
    : options(serve_options),
      context(io),
      loop(main_loop),
      names(served_names(serve_options)),
      offload(main_loop),
      router({serve_options.api_key, serve_options.allowed_origins}),
      server(io, server_options(), router),
      working(io.get_executor(), "engines"),
      stopping(io.get_executor(), "stop"),
      signals(io, SIGINT, SIGTERM) {}

int serve_command(const ServeOptions& options) {
  asio::io_context context(1);
  const std::unique_ptr<Loop> loop = make_loop(context);
  if (Result<void> valid = api::validate({options.api_key, options.allowed_origins}); !valid)
    return fail_command(valid.error().message);
  Result<PreparedModel> prepared = prepare_model(options.model, *loop);
  if (!prepared) return fail_command(prepared.error().message);

  log::info("heddle " HEDDLE_VERSION ": {} ({}, {} layers), {}", options.model.model,
            model::family_name(prepared->config.family), prepared->config.n_layers, prepared->device->describe());
  log::info("{}", prepared->plan.describe());
  log::info(
      "sampling defaults: temperature 1, top_p 1, top_k off, min_p 0, no penalties; chat answers may fill the context, "
      "completions end after 16 tokens");
  if (options.dry_run) {
    log::info("dry run: nothing was loaded");
    return 0;
  }

  ServerState state(options, context, *loop);
  stats::ExporterConfig exported{state.names.front(), options.model.data_parallel_size, prepared->plan.block_size,
                                 prepared->plan.n_blocks, options.model.enable_prefix_caching};
  state.exporter = std::make_unique<stats::Exporter>(
      exported, [&state] { return read_engines(state.engines.get()); },
      [&state] {
        const net::ServerCounters counters = state.server.counters();
        return stats::NetSnapshot{counters.open, counters.accepted};
      });
  add_routes(state);
  if (Result<void> listening = state.server.listen(options.host, options.port); !listening)
    return fail_command(listening.error().message);
  log::info("listening on {}, model name {}",
            fmt::format("http://{}", fmt::join(state.server.addresses(), ", http://")), fmt::join(state.names, ", "));

  watch_signals(state, false);
  std::thread loader([&] {
    Result<LoadedModel> loaded = load_model(
        options.model, *prepared, [&](const char* phase) { loop->post([&state, phase] { state.phase = phase; }); });
    // std::function must be copyable.
    auto shared = std::make_shared<Result<LoadedModel>>(std::move(loaded));
    loop->post([&state, &prepared, shared] { on_loaded(state, *prepared, std::move(*shared)); });
  });
  context.run();
  loader.join();
  log::info("stopped");
  return state.exit_code;
}

}  // namespace heddle::app
