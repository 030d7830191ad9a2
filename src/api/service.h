#pragma once
// What the routes do once a model is loaded: JSON in, engine requests, JSON out. Owned by the app; loop thread only
// (long texts are rendered and tokenised on the offload thread, on const data). Handlers never block and answer every
// request.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "api/chat_request.h"
#include "api/completion_request.h"
#include "api/generation.h"
#include "api/http.h"
#include "api/live_ids.h"
#include "api/request_terms.h"
#include "base/offload.h"
#include "engine/engine_group.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace heddle::api {

struct ServiceConfig {
  std::vector<std::string> served_names;  // accepted as `model`; the first is the one in replies and metric labels
  std::string root;                       // path of the model file
  std::string fingerprint;                // system_fingerprint
  uint32_t max_model_len = 0;
  uint64_t seed = 0;    // requests without a seed draw theirs from it, in order of arrival
  int64_t created = 0;  // Unix seconds
  TermsPolicy terms;
  int queue_full_status = 503;  // or 429
};

using Sink = std::shared_ptr<ResponseSink>;

class Service {
 public:
  // chat_template null: the model has none, and template_problem says why chat cannot work.
  Service(ServiceConfig config, std::shared_ptr<const text::Tokenizer> tokenizer,
          std::shared_ptr<const text::ChatTemplate> chat_template, std::string template_problem,
          engine::EngineGroup& engines, Offload& offload);

  void chat_completions(HttpRequest request, Sink sink);
  void completions(HttpRequest request, Sink sink);
  void models(const HttpRequest& request, const Sink& sink);
  void tokenize(const HttpRequest& request, const Sink& sink);
  void detokenize(const HttpRequest& request, const Sink& sink);
  // Ends the requests with these ids, as clients see them; none: all. Gives how many there were, each prompt counted.
  uint32_t abort_requests(const std::vector<std::string>& ids);

 private:
  struct Job;
  ApiResult<void> check_model(const std::optional<std::string>& model) const;
  ApiResult<std::vector<TokenId>> encode_chat(const text::ChatInput& input, bool add_special) const;
  ApiResult<std::vector<TokenId>> encode_text(std::string_view text, bool add_special) const;
  ApiResult<void> check_text_size(size_t bytes) const;
  // encode() here when the text is short, else on the offload thread; then() on the loop.
  void encode_then(size_t text_bytes, std::function<void()> encode, std::function<void()> then);
  void run(const std::shared_ptr<Job>& job, size_t text_bytes);
  void submit(Job& job);
  void refuse(const Job& job, const engine::Refusal& refusal) const;
  ApiResult<uint32_t> max_tokens_for(const GenerationFields& fields, size_t n_prompt,
                                     std::vector<std::string>& warnings) const;

  ServiceConfig config_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::shared_ptr<const text::ChatTemplate> template_;
  std::string template_problem_;
  engine::EngineGroup& engines_;
  Offload& offload_;
  GenerationLimits limits_;
  size_t max_token_bytes_ = 1;
  LiveIds live_;
  uint64_t requests_ = 0;  // numbers the requests: engine ids and seeds
};

}  // namespace heddle::api
