#include "api/generation.h"

#include <fmt/format.h>

#include "api/json_text.h"
#include "api/sse.h"

namespace heddle::api {

namespace {

// No answer but an error, whatever was generated.
bool is_failure(const engine::Finish& finish) {
  return finish.reason == engine::FinishReason::error || finish.deadline_exceeded;
}

}  // namespace

struct Generation::Choice {
  std::string text;  // not streaming: all of it; streaming: what is not yet sent
  uint32_t n_tokens = 0;
  bool role_sent = false;
  bool finish_sent = false;
  bool has_finish = false;
  engine::Finish finish;
};

class Generation::PromptSink final : public engine::OutputSink {
 public:
  PromptSink(std::shared_ptr<Generation> generation, uint32_t prompt)
      : generation_(std::move(generation)), prompt_(prompt) {}
  void on_delta(const engine::Delta& delta) override { generation_->on_delta(prompt_, delta); }
  void on_end(const engine::Usage& usage, const engine::Times& times) override {
    const std::shared_ptr<Generation> generation = std::move(generation_);
    generation->on_end(usage, times);
  }

 private:
  std::shared_ptr<Generation> generation_;  // dropped at the end, so that the exchange goes with its last prompt
  uint32_t prompt_;
};

Generation::Generation(GenerationOptions options, std::shared_ptr<ResponseSink> sink)
    : options_(std::move(options)),
      sink_(std::move(sink)),
      choices_(size_t{options_.n} * options_.n_prompts),
      prompt_tokens_(options_.n_prompts) {
  append_head(chunk_head_, options_.dialect == Dialect::chat ? "chat.completion.chunk" : "text_completion");
  chunk_head_.insert(0, "data: ");
  if (!options_.stream) return;
  // A token's worth of text and its chunk: the way of an event allocates nothing then.
  constexpr size_t text_bytes = 256, rest_bytes = 256;
  buffer_.reserve(chunk_head_.size() + text_bytes + rest_bytes);
  for (Choice& choice : choices_) choice.text.reserve(text_bytes);
}

Generation::~Generation() = default;

std::shared_ptr<engine::OutputSink> Generation::prompt_sink(uint32_t index, uint32_t n_prompt_tokens) {
  prompt_tokens_[index] = n_prompt_tokens;
  return std::make_shared<PromptSink>(shared_from_this(), index);
}

void Generation::begin(std::function<void()> abort) {
  sink_->on_gone([self = weak_from_this(), abort = std::move(abort)](Gone) {
    if (const auto generation = self.lock()) generation->finished_ = true;
    abort();
  });
  if (!options_.stream) return;
  sink_->on_writable([self = weak_from_this()] {
    if (const auto generation = self.lock()) generation->drain();
  });
  sink_->start_stream(200, sse_content_type, {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}});
}

void Generation::on_delta(uint32_t prompt, const engine::Delta& delta) {
  if (finished_) return;
  const uint32_t index = prompt * options_.n + delta.index;
  Choice& choice = choices_[index];
  choice.text.append(delta.text);
  choice.n_tokens += static_cast<uint32_t>(delta.tokens.size());
  if (delta.finish != nullptr) {
    choice.has_finish = true;
    choice.finish = *delta.finish;
  }
  if (options_.stream && !behind_) emit(index, choice);
}

void Generation::on_end(const engine::Usage& usage, const engine::Times& times) {
  usage_.n_prompt += usage.n_prompt;
  usage_.n_cached += usage.n_cached;
  usage_.n_generated += usage.n_generated;
  usage_.n_preemptions += usage.n_preemptions;
  started_ = started_ || times.scheduled != MonotonicTime{};
  if (++ended_prompts_ < options_.n_prompts || finished_) return;
  finish();
}

// The part of a choice that has not been sent yet, as one event. The role opens a chat choice once there is output.
void Generation::emit(uint32_t index, Choice& choice) {
  if (choice.finish_sent || (choice.text.empty() && !choice.has_finish && choice.role_sent)) return;
  // An error ends the whole stream with an error event (finish_stream), not with a finish reason.
  const bool failed = choice.has_finish && is_failure(choice.finish);
  const bool finishing = choice.has_finish && !failed;
  const bool chat = options_.dialect == Dialect::chat;
  const auto open = [&] {
    buffer_ = chunk_head_;
    buffer_ += ",\"choices\":[{\"index\":";
    append_number(buffer_, index);
  };
  const auto close = [&](bool first) {
    buffer_ += "}]";
    if (first && index == 0) append_warnings(buffer_);
    if (options_.continuous_usage) {
      const uint32_t prompt = index / options_.n;
      buffer_ += ",\"usage\":";
      append_usage(buffer_, {prompt_tokens_[prompt], 0, choice.n_tokens});
    } else if (options_.include_usage) {
      buffer_ += ",\"usage\":null";
    }
    buffer_ += "}\n\n";
    send(buffer_);
  };
  if (chat && !choice.role_sent) {
    open();
    buffer_ += ",\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null";
    close(true);
  }
  const bool first = !choice.role_sent;
  choice.role_sent = true;
  if (choice.text.empty() && !finishing) return;
  open();
  if (chat) {
    buffer_ += choice.text.empty() ? ",\"delta\":{" : ",\"delta\":{\"content\":";
    if (!choice.text.empty()) append_json_string(buffer_, choice.text);
    buffer_ += '}';
  } else {
    buffer_ += ",\"text\":";
    append_json_string(buffer_, choice.text);
  }
  choice.text.clear();
  buffer_ += ",\"logprobs\":null,\"finish_reason\":";
  if (finishing) {
    append_json_string(buffer_, engine::to_string(choice.finish.reason));
    buffer_ += ",\"stop_reason\":";
    if (!choice.finish.stop_string.empty())
      append_json_string(buffer_, choice.finish.stop_string);
    else if (choice.finish.stop_token >= 0)
      append_number(buffer_, choice.finish.stop_token);
    else
      buffer_ += "null";
    choice.finish_sent = true;
  } else {
    buffer_ += "null";
  }
  close(!chat && first);
}

void Generation::drain() {
  behind_ = false;
  if (finished_) return;
  for (uint32_t i = 0; i < choices_.size() && !behind_; ++i) {
    if (!choices_[i].text.empty() || choices_[i].has_finish) emit(i, choices_[i]);
  }
}

void Generation::finish() {
  finished_ = true;
  sink_->annotate(notes());
  if (options_.stream)
    finish_stream();
  else
    finish_reply();
}

void Generation::finish_stream() {
  for (uint32_t i = 0; i < choices_.size(); ++i) emit(i, choices_[i]);
  if (const std::optional<ApiError> error = failure()) {
    buffer_ = "data: ";
    buffer_ += error_body(*error);
    buffer_ += "\n\n";
    send(buffer_);
  } else if (options_.include_usage) {
    buffer_ = chunk_head_;
    buffer_ += ",\"choices\":[],\"usage\":";
    append_usage(buffer_, usage_);
    buffer_ += "}\n\n";
    send(buffer_);
  }
  send(sse_done);
  sink_->end();
}

void Generation::finish_reply() {
  if (const std::optional<ApiError> error = failure()) return sink_->reply(error_reply(*error));
  const bool chat = options_.dialect == Dialect::chat;
  std::string body;
  append_head(body, chat ? "chat.completion" : "text_completion");
  body += ",\"choices\":[";
  for (uint32_t i = 0; i < choices_.size(); ++i) {
    const Choice& choice = choices_[i];
    if (i > 0) body += ',';
    body += "{\"index\":";
    append_number(body, i);
    if (chat) {
      body += ",\"message\":{\"role\":\"assistant\",\"content\":";
      append_json_string(body, choice.text);
      body += ",\"refusal\":null}";
    } else {
      body += ",\"text\":";
      append_json_string(body, choice.text);
    }
    body += ",\"logprobs\":null,\"finish_reason\":";
    append_json_string(body, engine::to_string(choice.finish.reason));
    body += ",\"stop_reason\":";
    if (!choice.finish.stop_string.empty())
      append_json_string(body, choice.finish.stop_string);
    else if (choice.finish.stop_token >= 0)
      append_number(body, choice.finish.stop_token);
    else
      body += "null";
    body += '}';
  }
  body += "],\"service_tier\":null,\"usage\":";
  append_usage(body, usage_);
  append_warnings(body);
  body += '}';
  sink_->reply({200, "application/json", std::move(body), {}});
}

// What the client is told instead of an answer, if a choice failed. A fault of the engine comes before a missed
// deadline.
std::optional<ApiError> Generation::failure() const {
  std::optional<ApiError> late;
  for (const Choice& choice : choices_) {
    if (!choice.has_finish || !is_failure(choice.finish)) continue;
    const std::string& message = choice.finish.message;
    if (choice.finish.reason == engine::FinishReason::error)
      return ApiError{500, message.empty() ? "Internal server error" : message, ""};
    if (!late)
      late = ApiError{started_ ? 504 : 503, message.empty() ? "the request's time is over" : message, "",
                      "deadline_exceeded"};
  }
  return late;
}

void Generation::send(std::string_view event) {
  switch (sink_->write(event)) {
    case Flow::open:
      break;
    case Flow::behind:
      behind_ = true;
      break;
    case Flow::gone:
      finished_ = true;
      break;
  }
}

void Generation::append_head(std::string& out, std::string_view object) const {
  out += "{\"id\":";
  append_json_string(out, options_.id);
  out += ",\"object\":";
  append_json_string(out, object);
  out += ",\"created\":";
  append_number(out, options_.created);
  out += ",\"model\":";
  append_json_string(out, options_.model);
  out += ",\"system_fingerprint\":";
  append_json_string(out, options_.fingerprint);
}

void Generation::append_usage(std::string& out, const engine::Usage& usage) const {
  fmt::format_to(std::back_inserter(out),
                 "{{\"prompt_tokens\":{},\"total_tokens\":{},\"completion_tokens\":{},\"prompt_tokens_details\":null}}",
                 usage.n_prompt, usage.n_prompt + usage.n_generated, usage.n_generated);
}

void Generation::append_warnings(std::string& out) const {
  if (options_.warnings.empty()) return;
  out += ",\"warnings\":[";
  for (size_t i = 0; i < options_.warnings.size(); ++i) {
    if (i > 0) out += ',';
    append_json_string(out, options_.warnings[i]);
  }
  out += ']';
}

std::string Generation::notes() const {
  std::string reasons;
  for (const Choice& choice : choices_) {
    if (!reasons.empty()) reasons += ',';
    reasons += choice.has_finish ? engine::to_string(choice.finish.reason) : "none";
    if (reasons.size() > 60) {
      reasons += ",…";
      break;
    }
  }
  return fmt::format("prompt={} cached={} generated={} finish={} preemptions={}", usage_.n_prompt, usage_.n_cached,
                     usage_.n_generated, reasons, usage_.n_preemptions);
}

}  // namespace heddle::api
