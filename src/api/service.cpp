#include "api/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/value.hpp>

#include "api/json_text.h"
#include "base/check.h"
#include "text/chat_prompt.h"

namespace heddle::api {
namespace json = boost::json;
namespace {

// Above this, a text is tokenised off the loop: at 20 MB/s it costs 0.4 ms, less than a step.
constexpr size_t kInlineTextBytes = 8 * 1024;

// splitmix64: spreads consecutive request numbers over the seeds' whole range.
uint64_t mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

int64_t unix_seconds(WallTime time) {
  return std::chrono::duration_cast<std::chrono::seconds>(time.time_since_epoch()).count();
}

size_t text_bytes(const json::value& value) {
  if (value.is_string()) return value.get_string().size();
  size_t bytes = 0;
  if (value.is_array()) {
    for (const json::value& item : value.get_array()) bytes += text_bytes(item);
  } else if (value.is_object()) {
    for (const auto& member : value.get_object()) bytes += text_bytes(member.value());
  }
  return bytes;
}

ApiError to_api_error(const engine::Refusal& refusal, std::string_view prompt_field, int queue_full_status) {
  using Kind = engine::Refusal::Kind;
  switch (refusal.kind) {
    case Kind::never_fits:
      return {400, refusal.message, std::string(prompt_field)};
    case Kind::bad_request:
      return {400, refusal.message, ""};
    case Kind::duplicate_id:
      return {409, refusal.message, "request_id"};
    case Kind::unknown_id:
      return {404, refusal.message, "request_id"};
    case Kind::queue_full:
      return {queue_full_status, refusal.message, ""};
    case Kind::stopping:
      return {503, refusal.message, ""};
  }
  return {500, "Internal server error", ""};
}

}  // namespace

// A generating request between its validation and its submission.
struct Service::Job {
  Dialect dialect = Dialect::chat;
  HttpRequest http;  // body emptied
  Sink sink;
  GenerationFields fields;
  RequestTerms terms;
  text::ChatInput chat;
  std::vector<PromptInput> prompts;
  std::vector<std::string> warnings;
  ApiResult<std::vector<std::vector<TokenId>>> encoded;  // written off the loop
};

Service::Service(ServiceConfig config, std::shared_ptr<const text::Tokenizer> tokenizer,
                 std::shared_ptr<const text::ChatTemplate> chat_template, std::string template_problem,
                 engine::EngineGroup& engines, Offload& offload)
    : config_(std::move(config)),
      tokenizer_(std::move(tokenizer)),
      template_(std::move(chat_template)),
      template_problem_(std::move(template_problem)),
      engines_(engines),
      offload_(offload) {
  HEDDLE_CHECK(!config_.served_names.empty());
  limits_.vocab_size = static_cast<uint32_t>(tokenizer_->vocab_size());
  limits_.max_model_len = config_.max_model_len;
  const auto end_tokens = tokenizer_->end_tokens();
  limits_.end_tokens.assign(end_tokens.begin(), end_tokens.end());
  for (TokenId id = 0; id < tokenizer_->vocab_size(); ++id)
    max_token_bytes_ = std::max(max_token_bytes_, tokenizer_->token_bytes(id).size());
}

void Service::chat_completions(HttpRequest request, Sink sink) {
  ApiResult<json::object> body = parse_body(request);
  if (!body) return sink->reply(error_reply(body.error()));
  ApiResult<ChatRequest> chat = read_chat_request(*body, limits_);
  if (!chat) return sink->reply(error_reply(chat.error()));
  ApiResult<void> model = check_model(chat->fields.model);
  if (!model) return sink->reply(error_reply(model.error()));
  auto job = std::make_shared<Job>();
  job->dialect = Dialect::chat;
  job->fields = std::move(chat->fields);
  job->chat = std::move(chat->input);
  job->warnings = std::move(chat->warnings);
  job->http = std::move(request);
  job->sink = std::move(sink);
  const size_t bytes = text_bytes(job->chat.messages);
  run(job, bytes);
}

void Service::completions(HttpRequest request, Sink sink) {
  ApiResult<json::object> body = parse_body(request);
  if (!body) return sink->reply(error_reply(body.error()));
  ApiResult<CompletionRequest> completion = read_completion_request(*body, limits_);
  if (!completion) return sink->reply(error_reply(completion.error()));
  ApiResult<void> model = check_model(completion->fields.model);
  if (!model) return sink->reply(error_reply(model.error()));
  auto job = std::make_shared<Job>();
  job->dialect = Dialect::completion;
  job->fields = std::move(completion->fields);
  job->prompts = std::move(completion->prompts);
  job->warnings = std::move(completion->warnings);
  job->http = std::move(request);
  job->sink = std::move(sink);
  size_t bytes = 0;
  for (const PromptInput& prompt : job->prompts) {
    if (const auto* text = std::get_if<std::string>(&prompt)) bytes += text->size();
  }
  run(job, bytes);
}

void Service::run(const std::shared_ptr<Job>& job, size_t bytes) {
  job->http.body = {};
  if (ApiResult<void> size = check_text_size(bytes / std::max<size_t>(1, job->prompts.size())); !size)
    return job->sink->reply(error_reply(size.error()));
  ApiResult<RequestTerms> terms = read_terms(job->http, job->fields, config_.terms, job->warnings);
  if (!terms) return job->sink->reply(error_reply(terms.error()));
  job->terms = std::move(*terms);
  // Now, so that the line of a request that is refused or whose client goes away has them too.
  job->sink->annotate(job->terms.describe());
  // A full queue costs nobody the work of reading a prompt.
  const uint64_t n_sequences =
      std::max<size_t>(1, job->prompts.size()) * static_cast<uint64_t>(job->fields.n.value_or(1));
  if (const auto room = engines_.check_room(n_sequences); !room) return refuse(*job, room.error());
  const auto encode = [this, job] {
    std::vector<std::vector<TokenId>> all;
    if (job->dialect == Dialect::chat) {
      auto ids = encode_chat(job->chat, job->fields.add_special_tokens.value_or(false));
      if (!ids) {
        job->encoded = tl::unexpected(ids.error());
        return;
      }
      all.push_back(std::move(*ids));
    }
    for (size_t i = 0; i < job->prompts.size(); ++i) {
      if (auto* given = std::get_if<std::vector<TokenId>>(&job->prompts[i])) {
        all.push_back(std::move(*given));
        continue;
      }
      auto ids = encode_text(std::get<std::string>(job->prompts[i]), job->fields.add_special_tokens.value_or(true));
      if (!ids) {
        job->encoded = tl::unexpected(ids.error());
        return;
      }
      all.push_back(std::move(*ids));
    }
    job->encoded = std::move(all);
  };
  const auto then = [this, job] {
    if (job->sink->closed()) return;
    if (!job->encoded) return job->sink->reply(error_reply(job->encoded.error()));
    submit(*job);
  };
  encode_then(bytes, encode, then);
}

void Service::encode_then(size_t text_bytes, std::function<void()> encode, std::function<void()> then) {
  if (text_bytes > kInlineTextBytes) return offload_.submit(std::move(encode), std::move(then));
  encode();
  then();
}

void Service::submit(Job& job) {
  const bool chat = job.dialect == Dialect::chat;
  const std::string_view prompt_field = chat ? "messages" : "prompt";
  const uint64_t number = ++requests_;
  GenerationOptions options;
  options.dialect = job.dialect;
  options.id = fmt::format("{}-{}", chat ? "chatcmpl" : "cmpl",
                           job.http.header("x-request-id") ? job.http.id : job.fields.request_id.value_or(job.http.id));
  options.model = config_.served_names.front();
  options.fingerprint = config_.fingerprint;
  options.created = unix_seconds(job.http.arrival.wall);
  options.stream = job.fields.stream.value_or(false);
  options.include_usage = job.fields.include_usage;
  options.continuous_usage = job.fields.continuous_usage;
  options.n_prompts = static_cast<uint32_t>(job.encoded->size());

  // Everything that can be refused is checked before anything is submitted: one bad prompt refuses the whole request.
  engine::Request prototype = to_engine_request(job.fields, limits_, mix(config_.seed ^ mix(number)));
  options.n = prototype.n;
  prototype.arrival = job.http.arrival;
  prototype.priority = job.terms.priority;
  prototype.tenant = job.terms.tenant;
  prototype.deadlines = job.terms.deadlines(job.http.arrival);
  std::vector<engine::Request> requests;
  for (size_t i = 0; i < job.encoded->size(); ++i) {
    engine::Request request = prototype;
    request.id = fmt::format("{}-{}-{}", options.id, number, i);
    request.prompt = std::move((*job.encoded)[i]);
    if (request.prompt.empty())
      return job.sink->reply(
          error_reply({400, fmt::format("`{}` is empty: there is no token to start from", prompt_field),
                       std::string(prompt_field)}));
    ApiResult<uint32_t> max_tokens = max_tokens_for(job.fields, request.prompt.size(), job.warnings);
    if (!max_tokens) return job.sink->reply(error_reply(max_tokens.error()));
    if (!chat && !job.fields.max_tokens) *max_tokens = std::min<uint32_t>(*max_tokens, 16);
    request.max_tokens = *max_tokens;
    if (request.sampling.min_tokens > request.max_tokens)
      return job.sink->reply(error_reply({400,
                                          fmt::format("`min_tokens` must be at most max_tokens ({}), got {}",
                                                      request.max_tokens, request.sampling.min_tokens),
                                          "min_tokens"}));
    requests.push_back(std::move(request));
  }
  options.warnings = std::move(job.warnings);

  const std::string id = options.id;
  auto generation = std::make_shared<Generation>(std::move(options), job.sink);
  std::vector<std::string> ids;
  std::vector<std::shared_ptr<engine::OutputSink>> sinks;
  for (const engine::Request& request : requests) {
    ids.push_back(request.id);
    sinks.push_back(
        generation->prompt_sink(static_cast<uint32_t>(sinks.size()), static_cast<uint32_t>(request.prompt.size())));
  }
  const Result<void, engine::Refusal> submitted =
      engines_.submit(std::move(requests), std::move(sinks), {.rank = job.terms.rank});
  if (!submitted) {
    generation->refuse();
    return refuse(job, submitted.error());
  }
  generation->keep(live_.add(id, ids));
  generation->begin([this, ids = std::move(ids)] {
    for (const std::string& one : ids) engines_.abort(one);
  });
}

void Service::refuse(const Job& job, const engine::Refusal& refusal) const {
  using Kind = engine::Refusal::Kind;
  HttpReply reply = error_reply(
      to_api_error(refusal, job.dialect == Dialect::chat ? "messages" : "prompt", config_.queue_full_status));
  if (refusal.kind == Kind::queue_full || refusal.kind == Kind::stopping)
    reply.headers.push_back({"Retry-After", fmt::format("{}", std::max<uint32_t>(1, refusal.retry_after))});
  job.sink->reply(std::move(reply));
}

uint32_t Service::abort_requests(const std::vector<std::string>& ids) {
  if (ids.empty()) return engines_.abort_all();
  uint32_t n_aborted = 0;
  for (const std::string& id : ids) {
    for (const std::string& one : live_.find(id)) n_aborted += static_cast<uint32_t>(engines_.abort(one));
  }
  return n_aborted;
}

ApiResult<uint32_t> Service::max_tokens_for(const GenerationFields& fields, size_t n_prompt,
                                            std::vector<std::string>& warnings) const {
  if (n_prompt >= config_.max_model_len)
    return bad_request(
        "input_tokens",
        fmt::format("This model's maximum context length is {} tokens. However, your prompt contains {} input tokens; "
                    "shorten it so that at least one token can be generated.",
                    config_.max_model_len, n_prompt));
  const auto room = static_cast<uint32_t>(config_.max_model_len - n_prompt);
  if (!fields.max_tokens) return room;
  if (*fields.max_tokens > static_cast<int64_t>(config_.max_model_len))
    return bad_request("max_tokens", fmt::format("max_tokens={} cannot be greater than max_model_len={}",
                                                 *fields.max_tokens, config_.max_model_len));
  if (*fields.max_tokens > static_cast<int64_t>(room)) {
    warnings.push_back(fmt::format("max_tokens was lowered from {} to {}: the prompt has {} tokens and the context {}",
                                   *fields.max_tokens, room, n_prompt, config_.max_model_len));
    return room;
  }
  return static_cast<uint32_t>(*fields.max_tokens);
}

ApiResult<void> Service::check_model(const std::optional<std::string>& model) const {
  const auto& names = config_.served_names;
  if (!model || model->empty() || std::find(names.begin(), names.end(), *model) != names.end()) return {};
  return tl::unexpected(ApiError{
      404,
      fmt::format("The model `{}` does not exist. Valid aliases: {}", model->substr(0, 256), fmt::join(names, ", ")),
      "model"});
}

ApiResult<void> Service::check_text_size(size_t bytes) const {
  const size_t limit = size_t{config_.max_model_len} * max_token_bytes_;
  if (bytes <= limit) return {};
  return bad_request(
      "input_text",
      fmt::format(
          "This model's maximum context length is {} tokens. However, your prompt has {} bytes, more than that many "
          "tokens can hold ({}).",
          config_.max_model_len, bytes, limit));
}

ApiResult<std::vector<TokenId>> Service::encode_text(std::string_view text, bool add_special) const {
  // A raw prompt is the caller's own template: special tokens in it are meant (as in vLLM).
  return tokenizer_->encode(text, true, {.add_bos = add_special && tokenizer_->vocab().add_bos(), .add_eos = false});
}

ApiResult<std::vector<TokenId>> Service::encode_chat(const text::ChatInput& input, bool add_special) const {
  if (template_ == nullptr) return bad_request("messages", template_problem_);
  auto ids = text::encode_chat(*template_, *tokenizer_, input,
                               {.add_bos = add_special && tokenizer_->vocab().add_bos(), .add_eos = false});
  if (!ids) return bad_request("messages", ids.error().message);
  return std::move(*ids);
}

void Service::models(const HttpRequest&, const Sink& sink) {
  std::string body = "{\"object\":\"list\",\"data\":[";
  for (size_t i = 0; i < config_.served_names.size(); ++i) {
    if (i > 0) body += ',';
    body += "{\"id\":";
    append_json_string(body, config_.served_names[i]);
    fmt::format_to(std::back_inserter(body),
                   ",\"object\":\"model\",\"created\":{},\"owned_by\":\"heddle\",\"root\":", config_.created);
    append_json_string(body, config_.root);
    fmt::format_to(std::back_inserter(body),
                   ",\"parent\":null,\"max_model_len\":{},\"permission\":[{{\"id\":\"modelperm-{:08x}\",\"object\":"
                   "\"model_permission\",\"created\":{},"
                   "\"allow_create_engine\":false,\"allow_sampling\":true,\"allow_logprobs\":false,\"allow_search_"
                   "indices\":false,\"allow_view\":true,"
                   "\"allow_fine_tuning\":false,\"organization\":\"*\",\"group\":null,\"is_blocking\":false}}]}}",
                   config_.max_model_len, i, config_.created);
  }
  body += "]}";
  sink->reply({200, "application/json", std::move(body), {}});
}

}  // namespace heddle::api
