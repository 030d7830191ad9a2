// `heddle run` and `heddle chat`: answers at the terminal, without a server.
#include <fmt/format.h>
#include <unistd.h>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <iostream>

#include "app/commands.h"
#include "app/terminal.h"

namespace heddle::app {
namespace json = boost::json;
namespace {

// One turn: the conversation so far in, the answer to stdout.
Result<std::shared_ptr<TerminalAnswer>> turn(LocalEngine& local, const RunOptions& options, const json::array& messages,
                                             uint32_t number) {
  text::ChatInput input;
  input.messages = messages;
  Result<std::vector<TokenId>> ids = local.encode_chat(input);
  if (!ids) return tl::unexpected(ids.error());
  if (ids->size() >= local.max_model_len())
    return fail(fmt::format("the conversation has {} tokens, and the longest sequence is {}", ids->size(),
                            local.max_model_len()));
  engine::Request request = local.make_request(fmt::format("turn-{}", number), std::move(*ids));
  request.sampling.temperature = static_cast<float>(options.temperature);
  request.sampling.seed = options.model.seed + number;
  request.max_tokens = std::min(request.max_tokens, options.max_tokens);
  return answer(local, std::move(request));
}

}  // namespace

int run_command(const RunOptions& options) {
  Result<std::unique_ptr<LocalEngine>> local = LocalEngine::open(options.model);
  if (!local) return fail_command(local.error().message);
  const json::array messages{json::object{{"role", "user"}, {"content", options.prompt}}};
  auto done = turn(**local, options, messages, 0);
  if (!done) return fail_command(done.error().message);
  std::fputc('\n', stdout);
  if ((*done)->finish().reason == engine::FinishReason::error) return fail_command((*done)->finish().message);
  return (*done)->finish().reason == engine::FinishReason::abort ? 130 : 0;
}

int chat_command(const RunOptions& options) {
  Result<std::unique_ptr<LocalEngine>> local = LocalEngine::open(options.model);
  if (!local) return fail_command(local.error().message);
  const bool interactive = isatty(STDIN_FILENO) == 1;
  if (interactive)
    std::fprintf(stderr, "%s. Ctrl-C stops an answer, Ctrl-D ends, /clear starts over.\n",
                 (*local)->describe().c_str());
  json::array messages;
  std::string line;
  for (uint32_t number = 0;; ++number) {
    if (interactive) std::fputs("> ", stderr);
    // The engine is idle while the user types, so nothing waits for the loop.
    if (!std::getline(std::cin, line)) break;
    if (line.empty()) continue;
    if (line == "/clear") {
      messages.clear();
      continue;
    }
    messages.push_back(json::object{{"role", "user"}, {"content", line}});
    auto done = turn(**local, options, messages, number);
    std::fputc('\n', stdout);
    std::fflush(stdout);
    if (!done) {
      std::fprintf(stderr, "heddle: %s\n", done.error().message.c_str());
      messages.pop_back();
      if (!interactive) return 1;
      continue;
    }
    messages.push_back(json::object{{"role", "assistant"}, {"content", (*done)->text()}});
  }
  return 0;
}

}  // namespace heddle::app
