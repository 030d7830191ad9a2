#pragma once
// One HTTP exchange that generates text: one or several engine requests on one side, one ResponseSink on the other.
// Streaming and not share everything but the last step. Loop thread only. Kept alive by the engine's handles on its
// prompts' sinks; when the client goes away, the requests are aborted.
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/error.h"
#include "api/http.h"
#include "engine/output.h"

namespace heddle::api {

enum class Dialect : uint8_t { chat, completion };

struct GenerationOptions {
  Dialect dialect = Dialect::chat;
  std::string id;     // "chatcmpl-…" or "cmpl-…"
  std::string model;  // served name
  std::string fingerprint;
  int64_t created = 0;  // Unix seconds
  bool stream = false;
  bool include_usage = false;
  bool continuous_usage = false;
  uint32_t n = 1;          // choices a prompt
  uint32_t n_prompts = 1;  // choice index = prompt * n + sample
  std::vector<std::string> warnings;
};

class Generation : public std::enable_shared_from_this<Generation> {
 public:
  Generation(GenerationOptions options, std::shared_ptr<ResponseSink> sink);
  ~Generation();

  // The sink to submit prompt `index` with.
  std::shared_ptr<engine::OutputSink> prompt_sink(uint32_t index, uint32_t n_prompt_tokens);
  // After every prompt was submitted: opens the stream, and watches the client; `abort` ends all of its requests.
  void begin(std::function<void()> abort);
  // Another prompt of this exchange was refused: whatever still comes from the engine is not for the client.
  void refuse() { finished_ = true; }
  // Holds `registration` (live_ids.h) until the last prompt has ended.
  void keep(std::shared_ptr<void> registration) { registration_ = std::move(registration); }

 private:
  struct Choice;
  class PromptSink;
  void on_delta(uint32_t prompt, const engine::Delta& delta);
  void on_end(const engine::Usage& usage, const engine::Times& times);
  void emit(uint32_t index, Choice& choice);
  void drain();
  void finish();
  void finish_stream();
  void finish_reply();
  void send(std::string_view event);
  void append_head(std::string& out, std::string_view object) const;
  void append_usage(std::string& out, const engine::Usage& usage) const;
  void append_warnings(std::string& out) const;
  std::optional<ApiError> failure() const;
  std::string notes() const;

  GenerationOptions options_;
  std::shared_ptr<ResponseSink> sink_;
  std::vector<Choice> choices_;
  std::vector<uint32_t> prompt_tokens_;  // [n_prompts]
  engine::Usage usage_;                  // summed over prompts
  std::string chunk_head_;               // everything of a chunk up to the choice, formatted once
  std::string buffer_;                   // reused for each event
  std::shared_ptr<void> registration_;   // kept as long as the exchange lives
  uint32_t ended_prompts_ = 0;
  bool started_ = false;   // some prompt got its turn
  bool behind_ = false;    // the socket is full: deltas gather in the choices
  bool finished_ = false;  // answered, failed, or the client has gone
};

}  // namespace heddle::api
