// Any bytes as the body of any JSON route: an error or a request, never a crash.
#include "api/chat_request.h"
#include "api/completion_request.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace heddle::api;
  static const GenerationLimits kLimits{.vocab_size = 1000, .max_model_len = 64, .end_tokens = {2}};
  HttpRequest request;
  request.method = "POST";
  request.headers = {{"Content-Type", "application/json"}};
  request.body.assign(reinterpret_cast<const char*>(data), size);
  const auto body = parse_body(request);
  if (!body) {
    (void)error_body(body.error());
    return 0;
  }
  if (const auto chat = read_chat_request(*body, kLimits))
    (void)to_engine_request(chat->fields, kLimits, 1);
  else
    (void)error_body(chat.error());
  if (const auto completion = read_completion_request(*body, kLimits))
    (void)to_engine_request(completion->fields, kLimits, 1);
  else
    (void)error_body(completion.error());
  return 0;
}
