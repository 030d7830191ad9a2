// POST /tokenize and /detokenize: the tokenizer as clients and routers see it.
#include <fmt/format.h>

#include "api/json_text.h"
#include "api/service.h"
#include "text/detokenizer.h"

namespace heddle::api {
namespace json = boost::json;
namespace {

struct TokenizeFields {
  std::optional<std::string> model;
  std::optional<bool> add_special_tokens, return_token_strs;
};
const Field<TokenizeFields> kFields[] = {
    {"model", &TokenizeFields::model},
    {"add_special_tokens", &TokenizeFields::add_special_tokens},
    {"return_token_strs", &TokenizeFields::return_token_strs},
};

}  // namespace

void Service::tokenize(const HttpRequest& request, const Sink& sink) {
  ApiResult<json::object> body = parse_body(request);
  if (!body) return sink->reply(error_reply(body.error()));
  FieldReader reader(*body);
  TokenizeFields fields;
  if (auto read = reader.scalars(std::span<const Field<TokenizeFields>>(kFields), fields); !read)
    return sink->reply(error_reply(read.error()));
  if (auto model = check_model(fields.model); !model) return sink->reply(error_reply(model.error()));
  const json::value* prompt = reader.take("prompt");
  const bool is_chat = prompt == nullptr && body->if_contains("messages") != nullptr;
  struct Work {
    std::string text;
    text::ChatInput chat;
    ApiResult<std::vector<TokenId>> ids;
  };
  auto work = std::make_shared<Work>();
  if (is_chat) {
    std::vector<std::string> warnings;
    auto input = read_chat_input(reader, warnings);
    if (!input) return sink->reply(error_reply(input.error()));
    work->chat = std::move(*input);
  } else {
    if (prompt == nullptr || !prompt->is_string())
      return sink->reply(error_reply({400, "`prompt` must be a string (or give `messages`)", "prompt"}));
    work->text = std::string(prompt->get_string());
  }
  const auto encode = [this, work, is_chat, add_special = fields.add_special_tokens.value_or(!is_chat)] {
    work->ids = is_chat ? encode_chat(work->chat, add_special) : encode_text(work->text, add_special);
  };
  const auto then = [this, work, sink, with_strings = fields.return_token_strs.value_or(false)] {
    if (sink->closed()) return;
    if (!work->ids) return sink->reply(error_reply(work->ids.error()));
    std::string out =
        fmt::format("{{\"count\":{},\"max_model_len\":{},\"tokens\":[", work->ids->size(), config_.max_model_len);
    for (size_t i = 0; i < work->ids->size(); ++i) {
      if (i > 0) out += ',';
      append_number(out, (*work->ids)[i]);
    }
    out += "],\"token_strs\":";
    if (with_strings) {
      out += '[';
      for (size_t i = 0; i < work->ids->size(); ++i) {
        if (i > 0) out += ',';
        append_json_string(out, tokenizer_->token_bytes((*work->ids)[i]));
      }
      out += ']';
    } else {
      out += "null";
    }
    out += '}';
    sink->reply({200, "application/json", std::move(out), {}});
  };
  encode_then(request.body.size(), encode, then);
}

void Service::detokenize(const HttpRequest& request, const Sink& sink) {
  ApiResult<json::object> body = parse_body(request);
  if (!body) return sink->reply(error_reply(body.error()));
  FieldReader reader(*body);
  TokenizeFields fields;
  if (auto read = reader.scalars(std::span<const Field<TokenizeFields>>(kFields, 1), fields); !read)
    return sink->reply(error_reply(read.error()));
  if (auto model = check_model(fields.model); !model) return sink->reply(error_reply(model.error()));
  const json::value* tokens = reader.take("tokens");
  if (tokens == nullptr)
    return sink->reply(error_reply({400, "`tokens` is missing: it must be a list of token ids", "tokens"}));
  std::string text;
  if (!tokens->is_array() || !tokens->get_array().empty()) {
    ApiResult<std::vector<TokenId>> ids = read_token_ids("tokens", *tokens, limits_.vocab_size);
    if (!ids) return sink->reply(error_reply(ids.error()));
    text = text::decode(tokenizer_->vocab(), *ids, {.skip_special = false, .at_text_start = true});
  }
  std::string out = "{\"prompt\":";
  append_json_string(out, text);
  out += '}';
  sink->reply({200, "application/json", std::move(out), {}});
}

}  // namespace heddle::api
