#include "api/generation_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/value.hpp>
#include <charconv>

namespace heddle::api {
namespace json = boost::json;
namespace {

using F = Field<GenerationFields>;
using G = GenerationFields;
constexpr double kMaxInt32 = 2147483647.0;

constexpr Range at_least(double low) { return {.low = low, .high = 9.2e18}; }

const F kScalars[] = {
    {"model", &G::model},
    {"user", &G::user, {0, 512}},
    {"request_id", &G::request_id, {1, 256}},
    {"cache_salt", &G::cache_salt, {1, 128}},
    {"temperature", &G::temperature, {0, 2}},
    {"top_p", &G::top_p, {0, 1, true}},
    {"top_k", &G::top_k, {-1, kMaxInt32}},
    {"min_p", &G::min_p, {0, 1}},
    {"presence_penalty", &G::presence_penalty, {-2, 2}},
    {"frequency_penalty", &G::frequency_penalty, {-2, 2}},
    {"repetition_penalty", &G::repetition_penalty, {0, 1e6, true}},
    {"seed", &G::seed},
    {"n", &G::n, {1, static_cast<double>(kMaxChoices)}},
    {"max_tokens", &G::max_tokens, at_least(1)},
    {"min_tokens", &G::min_tokens, {0, kMaxInt32}},
    {"priority", &G::priority, {-kMaxInt32 - 1, kMaxInt32}},
    {"timeout_ms", &G::timeout_ms, {1, static_cast<double>(kMaxTimeoutMs)}},
    {"first_token_timeout_ms", &G::first_token_timeout_ms, {1, static_cast<double>(kMaxTimeoutMs)}},
    {"stream", &G::stream},
    {"ignore_eos", &G::ignore_eos},
    {"skip_special_tokens", &G::skip_special_tokens},
    {"include_stop_str_in_output", &G::include_stop_str_in_output},
    {"add_special_tokens", &G::add_special_tokens},
};

bool never(const json::value&) { return false; }
bool is_false(const json::value& v) { return v.is_bool() && !v.get_bool(); }
bool is_true(const json::value& v) { return v.is_bool() && v.get_bool(); }
bool is_one(const json::value& v) { return v.is_number() && v.to_number<double>() == 1; }
bool is_empty(const json::value& v) {
  return (v.is_array() && v.get_array().empty()) || (v.is_object() && v.get_object().empty()) ||
         (v.is_string() && v.get_string().empty());
}
bool is_plain_text_format(const json::value& v) {
  if (!v.is_object()) return false;
  const json::value* type = v.get_object().if_contains("type");
  return type != nullptr && type->is_string() && type->get_string() == "text";
}
bool only_text(const json::value& v) {
  return v.is_array() && v.get_array().size() == 1 && v.get_array()[0].is_string() &&
         v.get_array()[0].get_string() == "text";
}

const LaterField kLater[] = {
    {"response_format", is_plain_text_format},
    {"structured_outputs", never},
    {"use_beam_search", is_false},
    {"length_penalty", is_one},
    {"best_of", is_one},
    {"echo", is_false},
    {"prompt_logprobs", never},
    {"logprob_token_ids", is_empty},
    {"allowed_token_ids", never},
    {"bad_words", is_empty},
    {"truncate_prompt_tokens", never},
    {"spaces_between_special_tokens", is_true},
    {"return_token_ids", is_false},
    {"return_tokens_as_token_ids", is_false},
    {"return_prompt_text", is_false},
    {"session_id", never},
    {"kv_transfer_params", is_empty},
    {"ec_transfer_params", is_empty},
    {"vllm_xargs", is_empty},
    {"repetition_detection", never},
    {"thinking_token_budget", never},
    {"stream_interval", is_one},
    {"watermarking", is_false},
    {"modalities", only_text},
    {"audio", never},
    {"prediction", never},
};

// Fields of OpenAI's API that tell the service about the caller and change no token.
constexpr std::string_view kIgnored[] = {"service_tier", "store", "metadata", "safety_identifier", "prompt_cache_key"};

ApiResult<TokenId> read_token_id(std::string_view path, const json::value& value, uint32_t vocab_size) {
  ApiResult<int64_t> id = read_integer(path, value, {0, static_cast<double>(vocab_size) - 1});
  if (!id) return tl::unexpected(id.error());
  return static_cast<TokenId>(*id);
}

ApiResult<std::vector<std::string>> read_stop(const json::value& value) {
  const auto one = [](const std::string& path, const json::value& item) { return read_string(path, item, {1, 4096}); };
  std::vector<std::string> stop;
  if (value.is_string()) {
    ApiResult<std::string> text = one("stop", value);
    if (!text) return tl::unexpected(text.error());
    stop.push_back(std::move(*text));
    return stop;
  }
  if (!value.is_array())
    return bad_request("stop", fmt::format("`stop` must be a string or a list of strings, got {}", shown(value)));
  if (value.get_array().size() > kMaxStopStrings)
    return bad_request(
        "stop", fmt::format("`stop` may hold at most {} strings, got {}", kMaxStopStrings, value.get_array().size()));
  for (size_t i = 0; i < value.get_array().size(); ++i) {
    ApiResult<std::string> text = one(fmt::format("stop[{}]", i), value.get_array()[i]);
    if (!text) return bad_request("stop", text.error().message);
    stop.push_back(std::move(*text));
  }
  return stop;
}

ApiResult<std::vector<TokenId>> read_stop_ids(const json::value& value, uint32_t vocab_size) {
  if (!value.is_array())
    return bad_request("stop_token_ids",
                       fmt::format("`stop_token_ids` must be a list of token ids, got {}", shown(value)));
  std::vector<TokenId> ids;
  for (size_t i = 0; i < value.get_array().size(); ++i) {
    ApiResult<TokenId> id = read_token_id(fmt::format("stop_token_ids[{}]", i), value.get_array()[i], vocab_size);
    if (!id) return tl::unexpected(id.error());
    ids.push_back(*id);
  }
  return ids;
}

ApiResult<std::vector<std::pair<TokenId, float>>> read_logit_bias(const json::value& value, uint32_t vocab_size) {
  if (!value.is_object())
    return bad_request("logit_bias",
                       fmt::format("`logit_bias` must be an object of token id: bias, got {}", shown(value)));
  std::vector<std::pair<TokenId, float>> biases;
  for (const auto& member : value.get_object()) {
    const std::string_view key = member.key();
    int64_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc{} || end != key.data() + key.size() || id < 0 || id >= vocab_size)
      return bad_request("logit_bias", fmt::format("`logit_bias` keys must be token ids between 0 and {}, got '{}'",
                                                   vocab_size - 1, key.substr(0, 40)));
    ApiResult<double> bias = read_number(fmt::format("logit_bias[{}]", id), member.value(), {-100, 100});
    if (!bias) return bad_request("logit_bias", bias.error().message);
    biases.emplace_back(static_cast<TokenId>(id), static_cast<float>(*bias));
  }
  std::sort(biases.begin(), biases.end());
  return biases;
}

ApiResult<void> read_stream_options(const json::value& value, bool stream, GenerationFields& fields) {
  if (!value.is_object())
    return bad_request("stream_options", fmt::format("`stream_options` must be an object, got {}", shown(value)));
  if (!stream) return bad_request("stream_options", "`stream_options` is only allowed with `stream`: true");
  for (const auto& [name, into] : {std::pair{"include_usage", &fields.include_usage},
                                   std::pair{"continuous_usage_stats", &fields.continuous_usage}}) {
    const json::value* flag = value.get_object().if_contains(name);
    if (flag == nullptr || flag->is_null()) continue;
    ApiResult<bool> read = read_bool(fmt::format("stream_options.{}", name), *flag);
    if (!read) return tl::unexpected(read.error());
    *into = *read;
  }
  fields.continuous_usage = fields.continuous_usage && fields.include_usage;
  return {};
}

}  // namespace

ApiResult<GenerationFields> read_generation_fields(FieldReader& reader, const GenerationLimits& limits) {
  GenerationFields fields;
  ApiResult<void> read = reader.scalars(std::span<const F>(kScalars), fields);
  if (!read) return tl::unexpected(read.error());
  // As in vLLM. What a salt holds cannot leave its domain anyway: domains are compared field by field.
  if (fields.cache_salt && fields.cache_salt->find_first_of(std::string_view("@/\\\0", 4)) != std::string::npos)
    return bad_request("cache_salt", "`cache_salt` must not have any of @, /, \\ and NUL");
  if (const json::value* value = reader.take("stop")) {
    auto stop = read_stop(*value);
    if (!stop) return tl::unexpected(stop.error());
    fields.stop = std::move(*stop);
  }
  if (const json::value* value = reader.take("stop_token_ids")) {
    auto ids = read_stop_ids(*value, limits.vocab_size);
    if (!ids) return tl::unexpected(ids.error());
    fields.stop_token_ids = std::move(*ids);
  }
  if (const json::value* value = reader.take("logit_bias")) {
    auto biases = read_logit_bias(*value, limits.vocab_size);
    if (!biases) return tl::unexpected(biases.error());
    fields.logit_bias = std::move(*biases);
  }
  if (const json::value* value = reader.take("stream_options")) {
    read = read_stream_options(*value, fields.stream.value_or(false), fields);
    if (!read) return tl::unexpected(read.error());
  }
  read = reader.later(kLater);
  if (!read) return tl::unexpected(read.error());
  reader.ignore(kIgnored);
  if (fields.n.value_or(1) > 1 && fields.temperature.value_or(1.0) < 1e-5)
    return bad_request("n",
                       fmt::format("`n` must be 1 when using greedy sampling (`temperature` 0), got {}", *fields.n));
  return fields;
}

engine::Request to_engine_request(const GenerationFields& fields, const GenerationLimits& limits, uint64_t seed) {
  engine::Request request;
  request.n = static_cast<uint32_t>(fields.n.value_or(1));
  request.skip_special_tokens = fields.skip_special_tokens.value_or(true);
  request.cache_salt = fields.cache_salt.value_or("");
  device::SlotSampling& sampling = request.sampling;
  sampling.temperature = static_cast<float>(fields.temperature.value_or(1.0));
  sampling.top_p = static_cast<float>(fields.top_p.value_or(1.0));
  sampling.top_k = static_cast<int32_t>(fields.top_k.value_or(0));
  sampling.min_p = static_cast<float>(fields.min_p.value_or(0.0));
  sampling.presence_penalty = static_cast<float>(fields.presence_penalty.value_or(0.0));
  sampling.frequency_penalty = static_cast<float>(fields.frequency_penalty.value_or(0.0));
  sampling.repetition_penalty = static_cast<float>(fields.repetition_penalty.value_or(1.0));
  sampling.logit_bias = fields.logit_bias;
  sampling.seed = fields.seed && *fields.seed != -1 ? static_cast<uint64_t>(*fields.seed) : seed;
  sampling.min_tokens = static_cast<uint32_t>(fields.min_tokens.value_or(0));
  request.stop.ignore_eos = fields.ignore_eos.value_or(false);
  request.stop.strings = fields.stop;
  request.stop.token_ids = fields.stop_token_ids;
  request.stop.include_stop_string = fields.include_stop_str_in_output.value_or(false);
  // min_tokens keeps every token that would end the answer from being drawn.
  if (!request.stop.ignore_eos) sampling.end_tokens = limits.end_tokens;
  for (TokenId id : fields.stop_token_ids) {
    if (std::find(sampling.end_tokens.begin(), sampling.end_tokens.end(), id) == sampling.end_tokens.end())
      sampling.end_tokens.push_back(id);
  }
  return request;
}

}  // namespace heddle::api
