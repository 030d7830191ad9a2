// `heddle generate MODEL --prompts F.jsonl`: the offline front end. The same engine as the server's, without HTTP:
// everything is submitted at once, outputs come in the order of the inputs, and a refused input has an error as its
// output.
#include <fmt/format.h>

#include <algorithm>
#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <fstream>
#include <iostream>

#include "api/chat_request.h"
#include "api/completion_request.h"
#include "api/json_text.h"
#include "api/request_terms.h"
#include "app/commands.h"
#include "app/terminal.h"

namespace heddle::app {
namespace json = boost::json;
namespace {

// One line of the input and what came of it.
struct Item final : engine::OutputSink {
  std::string error;  // refused: why
  std::vector<std::string> texts;
  std::vector<engine::Finish> finishes;
  engine::Usage usage;
  engine::Times times;
  size_t* n_done = nullptr;

  void on_delta(const engine::Delta& delta) override {
    texts[delta.index].append(delta.text);
    if (delta.finish != nullptr) finishes[delta.index] = *delta.finish;
  }
  void on_end(const engine::Usage& u, const engine::Times& t) override {
    usage = u;
    times = t;
    ++*n_done;
  }
};

// A line is the body of /v1/completions (prompt) or /v1/chat/completions (messages), less what only a connection needs.
api::ApiResult<engine::Request> read_line(const std::string& line, const LocalEngine& local,
                                          const api::GenerationLimits& limits, const api::TermsPolicy& policy,
                                          uint64_t seed) {
  json::error_code error;
  const json::value value = json::parse(line, error);
  if (error || !value.is_object())
    return api::bad_request("", fmt::format("the line is not a JSON object{}", error ? ": " + error.message() : ""));
  const json::object& body = value.get_object();
  api::GenerationFields fields;
  std::vector<TokenId> ids;
  const bool chat = body.if_contains("messages") != nullptr;
  if (chat) {
    auto request = api::read_chat_request(body, limits);
    if (!request) return tl::unexpected(request.error());
    fields = std::move(request->fields);
    auto encoded = local.encode_chat(request->input);
    if (!encoded) return api::bad_request("messages", encoded.error().message);
    ids = std::move(*encoded);
  } else {
    auto request = api::read_completion_request(body, limits);
    if (!request) return tl::unexpected(request.error());
    if (request->prompts.size() != 1) return api::bad_request("prompt", "`prompt` must be one prompt a line");
    fields = std::move(request->fields);
    if (auto* given = std::get_if<std::vector<TokenId>>(&request->prompts[0]))
      ids = std::move(*given);
    else
      ids = local.tokenizer().encode(std::get<std::string>(request->prompts[0]), true,
                                     {.add_bos = local.tokenizer().vocab().add_bos(), .add_eos = false});
  }
  if (ids.empty()) return api::bad_request("prompt", "`prompt` is empty: there is no token to start from");
  if (ids.size() >= limits.max_model_len)
    return api::bad_request("input_tokens", fmt::format("the prompt has {} tokens, and the longest sequence is {}",
                                                        ids.size(), limits.max_model_len));
  engine::Request request = api::to_engine_request(fields, limits, seed);
  const int64_t room = static_cast<int64_t>(limits.max_model_len) - static_cast<int64_t>(ids.size());
  request.max_tokens = static_cast<uint32_t>(std::min(room, fields.max_tokens.value_or(chat ? room : 16)));
  request.prompt = std::move(ids);
  request.arrival = Arrival::now();
  std::vector<std::string> warnings;  // as those of unknown fields, which an output has no place for
  const auto terms = api::read_terms({}, fields, policy, warnings);
  if (!terms) return tl::unexpected(terms.error());
  request.priority = terms->priority;
  request.tenant = terms->tenant;
  request.deadlines = terms->deadlines(request.arrival);
  return request;
}

std::string to_line(size_t index, const Item& item) {
  std::string out = fmt::format("{{\"index\":{}", index);
  std::string error = item.error;
  for (const engine::Finish& finish : item.finishes) {
    const bool failed = finish.reason == engine::FinishReason::error || finish.deadline_exceeded;
    if (failed && error.empty()) error = finish.message.empty() ? "Internal server error" : finish.message;
  }
  if (!error.empty()) {
    out += ",\"error\":";
    api::append_json_string(out, error);
    return out + "}\n";
  }
  out += ",\"choices\":[";
  for (size_t i = 0; i < item.texts.size(); ++i) {
    out += fmt::format("{}{{\"index\":{},\"text\":", i > 0 ? "," : "", i);
    api::append_json_string(out, item.texts[i]);
    out += fmt::format(",\"finish_reason\":\"{}\"}}", engine::to_string(item.finishes[i].reason));
  }
  out += fmt::format("],\"usage\":{{\"prompt_tokens\":{},\"completion_tokens\":{}}}}}\n", item.usage.n_prompt,
                     item.usage.n_generated);
  return out;
}

// The offline latencies: since preparing the prompts piles up, an end-to-end time would say nothing, and is not shown.
void print_latencies(const std::vector<std::shared_ptr<Item>>& items) {
  std::vector<double> scheduled;
  std::vector<double> prefill;
  std::vector<double> decode;
  for (const auto& item : items) {
    const engine::Times& t = item->times;
    if (!item->error.empty() || t.first_token == MonotonicTime{}) continue;
    scheduled.push_back(seconds(t.scheduled - t.queued));
    prefill.push_back(seconds(t.first_token - t.scheduled));
    const uint32_t n = item->usage.n_generated / std::max<uint32_t>(1, static_cast<uint32_t>(item->texts.size()));
    if (n > 1) decode.push_back(seconds(t.last_token - t.first_token) / (n - 1));
  }
  const auto row = [](const char* name, std::vector<double>& times) {
    std::sort(times.begin(), times.end());
    double sum = 0;
    for (double t : times) sum += t;
    std::fprintf(stderr, "%-20s %8zu %10.3f %10.3f %10.3f %10.3f\n", name, times.size(),
                 times.empty() ? 0 : 1e3 * sum / static_cast<double>(times.size()), 1e3 * percentile(times, 0.5),
                 1e3 * percentile(times, 0.99), times.empty() ? 0 : 1e3 * times.back());
  };
  std::fprintf(stderr, "%-20s %8s %10s %10s %10s %10s\n", "latency", "requests", "mean ms", "p50 ms", "p99 ms",
               "max ms");
  row("scheduled_latency", scheduled);
  row("prefill_latency", prefill);
  row("decode_latency", decode);
}

}  // namespace

int generate_command(const GenerateOptions& options) {
  std::ifstream file(options.prompts);
  if (!file) return fail_command(fmt::format("--prompts {}: cannot be read", options.prompts));
  std::ofstream output_file;
  if (!options.output.empty()) {
    output_file.open(options.output, std::ios::binary);
    if (!output_file) return fail_command(fmt::format("--output {}: cannot be written", options.output));
  }
  std::ostream& output = options.output.empty() ? std::cout : output_file;
  Result<std::unique_ptr<LocalEngine>> opened = LocalEngine::open(options.model);
  if (!opened) return fail_command(opened.error().message);
  LocalEngine& local = **opened;

  api::GenerationLimits limits;
  limits.vocab_size = static_cast<uint32_t>(local.tokenizer().vocab_size());
  limits.max_model_len = local.max_model_len();
  limits.end_tokens.assign(local.tokenizer().end_tokens().begin(), local.tokenizer().end_tokens().end());
  std::vector<std::shared_ptr<Item>> items;
  size_t n_done = 0;
  const MonotonicTime start = Monotonic::now();
  for (std::string line; std::getline(file, line);) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    auto item = std::make_shared<Item>();
    item->n_done = &n_done;
    api::ApiResult<engine::Request> request =
        read_line(line, local, limits, {options.model.scheduling_policy, 1}, options.model.seed + items.size());
    if (!request) {
      item->error = request.error().message;
    } else {
      request->id = fmt::format("line-{}", items.size());
      item->texts.resize(request->n);
      item->finishes.resize(request->n);
      Result<void, engine::Refusal> submitted = local.engine().submit(std::move(*request), item);
      if (!submitted) item->error = submitted.error().message;
    }
    if (!item->error.empty()) ++n_done;
    items.push_back(std::move(item));
  }
  size_t n_written = 0;
  {
    ProgressBar bar("generating", items.size());
    local.run_until([&] {
      bar.set(n_done);
      return n_done == items.size();
    });
  }
  uint64_t n_generated = 0;
  uint64_t n_prompt = 0;
  size_t n_failed = 0;
  for (; n_written < items.size(); ++n_written) {
    output << to_line(n_written, *items[n_written]);
    n_generated += items[n_written]->usage.n_generated;
    n_prompt += items[n_written]->usage.n_prompt;
    n_failed += !items[n_written]->error.empty();
  }
  output.flush();
  if (!output) return fail_command("the output could not be written");
  const double elapsed = seconds(Monotonic::now() - start);
  std::fprintf(stderr, "%zu outputs (%zu refused), %llu prompt and %llu generated tokens in %.2f s: %.1f tokens/s\n",
               items.size(), n_failed, static_cast<unsigned long long>(n_prompt),
               static_cast<unsigned long long>(n_generated), elapsed, static_cast<double>(n_generated) / elapsed);
  print_latencies(items);
  return 0;
}

}  // namespace heddle::app
