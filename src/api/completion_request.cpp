#include "api/completion_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/value.hpp>

namespace heddle::api {
namespace json = boost::json;
namespace {

const LaterField kLater[] = {
    {"logprobs", [](const json::value&) { return false; }},
    {"suffix", [](const json::value& v) { return v.is_string() && v.get_string().empty(); }},
    {"prompt_embeds", [](const json::value&) { return false; }},
};

ApiResult<std::vector<PromptInput>> read_prompt(const json::value* value, uint32_t vocab_size) {
  constexpr std::string_view kForms =
      "a string, a list of strings, a list of token ids or a list of lists of token ids";
  if (value == nullptr) return bad_request("prompt", fmt::format("`prompt` is missing: it must be {}", kForms));
  std::vector<PromptInput> prompts;
  if (value->is_string()) {
    prompts.emplace_back(std::string(value->get_string()));
    return prompts;
  }
  if (!value->is_array())
    return bad_request("prompt", fmt::format("`prompt` must be {}, got {}", kForms, shown(*value)));
  const json::array& list = value->get_array();
  if (list.empty()) return bad_request("prompt", "`prompt` must not be empty");
  if (list[0].is_number()) {
    auto ids = read_token_ids("prompt", *value, vocab_size);
    if (!ids) return tl::unexpected(ids.error());
    prompts.emplace_back(std::move(*ids));
    return prompts;
  }
  if (list.size() > kMaxPrompts)
    return bad_request("prompt", fmt::format("`prompt` may hold at most {} prompts, got {}", kMaxPrompts, list.size()));
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string path = fmt::format("prompt[{}]", i);
    if (list[0].is_string() && list[i].is_string()) {
      prompts.emplace_back(std::string(list[i].get_string()));
    } else if (list[0].is_array() && list[i].is_array()) {
      auto ids = read_token_ids(path, list[i], vocab_size);
      if (!ids) return tl::unexpected(ids.error());
      prompts.emplace_back(std::move(*ids));
    } else {
      return bad_request(path, fmt::format("`prompt` must be {}, got {} at `{}`", kForms, shown(list[i]), path));
    }
  }
  return prompts;
}

}  // namespace

ApiResult<std::vector<TokenId>> read_token_ids(std::string_view path, const json::value& value, uint32_t vocab_size) {
  if (!value.is_array())
    return bad_request(std::string(path), fmt::format("`{}` must be a list of token ids, got {}", path, shown(value)));
  if (value.get_array().empty()) return bad_request(std::string(path), fmt::format("`{}` must not be empty", path));
  std::vector<TokenId> ids;
  ids.reserve(value.get_array().size());
  for (size_t i = 0; i < value.get_array().size(); ++i) {
    const json::value& item = value.get_array()[i];
    if (item.is_int64() && item.get_int64() >= 0 && item.get_int64() < vocab_size) {
      ids.push_back(static_cast<TokenId>(item.get_int64()));
      continue;
    }
    return bad_request(
        fmt::format("{}[{}]", path, i),
        fmt::format("`{}[{}]` must be a token id between 0 and {}, got {}", path, i, vocab_size - 1, shown(item)));
  }
  return ids;
}

ApiResult<CompletionRequest> read_completion_request(const json::object& body, const GenerationLimits& limits) {
  FieldReader reader(body);
  CompletionRequest request;
  auto fields = read_generation_fields(reader, limits);
  if (!fields) return tl::unexpected(fields.error());
  request.fields = std::move(*fields);
  auto prompts = read_prompt(reader.take("prompt"), limits.vocab_size);
  if (!prompts) return tl::unexpected(prompts.error());
  request.prompts = std::move(*prompts);
  auto later = reader.later(kLater);
  if (!later) return tl::unexpected(later.error());
  for (const std::string& name : reader.unknown())
    request.warnings.push_back(fmt::format("unknown field `{}` was ignored", name));
  return request;
}

}  // namespace heddle::api
