// The program: which command, its options, its exit code.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include "app/commands.h"
#include "app/options.h"
#include "app/terminal.h"
#include "base/log.h"

namespace {

using namespace heddle;
using namespace heddle::app;

// `-` and `_` are the same in long names, as in vLLM.
std::vector<std::string> normalised(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  for (std::string& argument : arguments) {
    if (!argument.starts_with("--")) continue;
    for (char& c : argument) {
      if (c == '=') break;
      if (c == '_') c = '-';
    }
  }
  return {arguments.rbegin(), arguments.rend()};  // CLI11 takes them from the back
}

void add_answer_options(CLI::App& command, RunOptions& options) {
  command.add_option("--max-tokens", options.max_tokens, "Longest answer, in tokens")
      ->check(CLI::PositiveNumber)
      ->capture_default_str()
      ->group("Answer");
  command.add_option("--temperature", options.temperature, "0: always the likeliest token")
      ->check(CLI::Range(0.0, 2.0))
      ->capture_default_str()
      ->group("Answer");
}

void add_bench_loop_options(CLI::App& command, BenchLoopOptions& options) {
  command.add_option("--running", options.running, "Numbers of sequences that decode")
      ->delimiter(',')
      ->check(CLI::Range(1u, 65536u))
      ->capture_default_str();
  command.add_option("--steps", options.steps, "Steps measured in each run")
      ->check(CLI::Range(2u, 1u << 20))
      ->capture_default_str();
  command.add_option("--warmup", options.warmup, "Steps before them")
      ->check(CLI::Range(2u, 1u << 20))
      ->capture_default_str();
  command.add_option("--repeats", options.repeats, "Runs; the best is shown")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command.add_option("--depth", options.depth, "Steps in flight [default: 2; with --device-ms 1, 2 and 3]")
      ->check(CLI::Range(1u, 8u));
  command
      .add_option("--device-ms", options.device_ms,
                  "What a step takes on the device: shows the share of the time that the device is busy")
      ->check(CLI::PositiveNumber);
}

void add_bench_stream_options(CLI::App& command, BenchStreamOptions& options) {
  command.add_option("--connections", options.connections, "Streams at a time [default: 64, with a model 16]")
      ->check(CLI::Range(1u, 4096u))
      ->group("Measurement");
  command.add_option("--max-tokens", options.max_tokens, "Tokens of each answer [default: 3000, with a model 128]")
      ->check(CLI::Range(1u, 65536u))
      ->group("Measurement");
  command.add_option("--rounds", options.rounds, "Rounds of each measurement; the median is shown")
      ->check(CLI::PositiveNumber)
      ->capture_default_str()
      ->group("Measurement");
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  CLI::App program{"heddle " HEDDLE_VERSION ": an LLM serving engine", "heddle"};
  program.set_version_flag("--version", "heddle " HEDDLE_VERSION);
  program.require_subcommand(1);
  std::string config_file;

  ServeOptions serve;
  CLI::App* serve_app = program.add_subcommand("serve", "Serve a model over the OpenAI HTTP API");
  add_model_options(*serve_app, serve.model, config_file);
  add_serve_options(*serve_app, serve);

  RunOptions chat;
  chat.model.max_num_seqs = 1;
  chat.model.log_level = log::Level::warning;
  CLI::App* chat_app = program.add_subcommand("chat", "Talk with a model at the terminal");
  add_model_options(*chat_app, chat.model, config_file);
  add_answer_options(*chat_app, chat);

  RunOptions run;
  run.model.max_num_seqs = 1;
  run.model.log_level = log::Level::warning;
  CLI::App* run_app = program.add_subcommand("run", "Answer one prompt and exit");
  add_model_options(*run_app, run.model, config_file);
  run_app->add_option("prompt", run.prompt, "What the user says")->required()->group("Answer");
  add_answer_options(*run_app, run);

  GenerateOptions generate;
  generate.model.log_level = log::Level::warning;
  CLI::App* generate_app = program.add_subcommand("generate", "Answer a file of prompts, without a server");
  add_model_options(*generate_app, generate.model, config_file);
  generate_app->add_option("--prompts", generate.prompts, "JSON lines, each the body of a completion or chat request")
      ->required()
      ->group("Input and output");
  generate_app
      ->add_option("--output", generate.output,
                   "File for the outputs, JSON lines in the order of the inputs [default: stdout]")
      ->group("Input and output");

  BenchOptions bench;
  bench.model.log_level = log::Level::warning;
  bench.model.enable_prefix_caching = false;
  CLI::App* bench_app = program.add_subcommand("bench",
                                               "Measure prefill and batched decode (bench MODEL), the host's share of "
                                               "a step (bench loop), streaming over sockets "
                                               "(bench stream), or load a server (bench serve URL)");
  bench_app->require_subcommand(0, 1);
  add_model_options(*bench_app, bench.model, config_file);
  bench_app->add_option("--prompt-tokens", bench.prompt_tokens, "Tokens of the prefill measured")
      ->check(CLI::PositiveNumber)
      ->capture_default_str()
      ->group("Measurement");
  bench_app
      ->add_option("--decode-prompt-tokens", bench.decode_prompt_tokens,
                   "Prompt of each sequence of the decode measured")
      ->check(CLI::PositiveNumber)
      ->capture_default_str()
      ->group("Measurement");
  bench_app->add_option("--decode-tokens", bench.decode_tokens, "New tokens of each sequence")
      ->check(CLI::Range(2u, 65536u))
      ->capture_default_str()
      ->group("Measurement");
  bench_app->add_option("--batches", bench.batches, "Numbers of sequences decoded at once")
      ->delimiter(',')
      ->check(CLI::PositiveNumber)
      ->capture_default_str()
      ->group("Measurement");
  bench_app->add_option("--repeats", bench.repeats, "Runs of each measurement; the best is shown")
      ->check(CLI::PositiveNumber)
      ->capture_default_str()
      ->group("Measurement");
  BenchServeOptions load;
  CLI::App* load_app = bench_app->add_subcommand("serve", "Load a running server");
  load_app->add_option("url", load.url, "Such as http://127.0.0.1:8000")->required();
  load_app->add_option("--model", load.load.model, "Model name to send [default: none]");
  load_app->add_option("--concurrency", load.load.concurrency, "Streams at a time")
      ->check(CLI::Range(1u, 4096u))
      ->capture_default_str();
  load_app->add_option("--requests", load.load.requests, "Requests in all")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  load_app->add_option("--prompt-words", load.load.prompt_words, "Words of each prompt")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  load_app->add_option("--max-tokens", load.load.max_tokens, "Tokens of each answer")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  load_app->add_option("--seed", load.load.seed, "Seed of the prompts")->capture_default_str();
  load_app->add_option("--api-key", load.load.api_key, "Key to send")->envname("HEDDLE_API_KEY");

  BenchLoopOptions loop;
  add_bench_loop_options(*bench_app->add_subcommand("loop", "Measure what the host does in a step, without a device"),
                         loop);

  BenchStreamOptions stream;
  stream.model.log_level = log::Level::warning;
  CLI::App* stream_app = bench_app->add_subcommand(
      "stream", "Measure streaming over sockets: without a model events a second, with one the CPU time it costs");
  add_model_options(*stream_app, stream.model, config_file);
  add_bench_stream_options(*stream_app, stream);

  if (argc > 1 && argv[1][0] != '-' &&
      program.get_subcommands([&](const CLI::App* command) { return command->get_name() == argv[1]; }).empty())
    return fail_command(
        fmt::format("'{}' is no command; there are serve, chat, run, generate and bench (see heddle --help)", argv[1]));
  try {
    program.parse(normalised(argc, argv));
  } catch (const CLI::CallForHelp& help) {
    return program.exit(help);
  } catch (const CLI::CallForAllHelp& help) {
    return program.exit(help);
  } catch (const CLI::CallForVersion& version) {
    return program.exit(version);
  } catch (const CLI::ParseError& error) {
    return fail_command(error.what());
  }
  for (CLI::App* command : {serve_app, chat_app, run_app, generate_app, bench_app, stream_app}) {
    if (!command->parsed() || config_file.empty()) continue;
    if (command == bench_app && stream_app->parsed()) continue;  // the file is for the inner command
    if (Result<void> applied = apply_config_file(*command, config_file); !applied)
      return fail_command(applied.error().message);
  }
  const auto run_with_log = [](const ModelOptions& options, auto&& command) {
    log::start(options.log_level);
    const int code = command();
    log::flush_and_stop();
    return code;
  };
  if (serve_app->parsed()) return run_with_log(serve.model, [&] { return serve_command(serve); });
  if (chat_app->parsed()) return run_with_log(chat.model, [&] { return chat_command(chat); });
  if (run_app->parsed()) return run_with_log(run.model, [&] { return run_command(run); });
  if (generate_app->parsed()) return run_with_log(generate.model, [&] { return generate_command(generate); });
  if (load_app->parsed()) return bench_serve_command(load);
  if (bench_app->got_subcommand("loop")) return bench_loop_command(loop);
  if (stream_app->parsed()) return bench_stream_command(stream);  // starts the log when it has forked
  return run_with_log(bench.model, [&] { return bench_command(bench); });
}
