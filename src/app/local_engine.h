#pragma once
// A model in this process without a server, for the commands that answer at the terminal: the loop runs on the calling
// thread, only while there is something to wait for.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "app/model_host.h"
#include "app/options.h"
#include "net/scope.h"

namespace heddle::app {

class LocalEngine {
 public:
  static Result<std::unique_ptr<LocalEngine>> open(const ModelOptions& options);
  ~LocalEngine();  // aborts what is live and drains

  engine::Engine& engine() { return *engine_; }
  const text::Tokenizer& tokenizer() const { return *tokenizer_; }
  uint32_t max_model_len() const { return max_model_len_; }
  const std::string& describe() const { return description_; }
  uint32_t threads() const { return threads_; }
  cpu::Isa isa() const { return isa_; }
  uint64_t weight_bytes() const { return weight_bytes_; }  // read for each step
  uint64_t macs_per_token() const { return layer_macs_ + head_macs_; }
  uint64_t macs_per_prompt_token() const { return layer_macs_; }  // the head runs for sampled rows alone

  // Renders and tokenises a conversation; fails with one line.
  Result<std::vector<TokenId>> encode_chat(const text::ChatInput& input) const;
  // Fills what every request needs: end set, clocks, room for the answer.
  engine::Request make_request(std::string id, std::vector<TokenId> prompt) const;
  // Runs the loop until `done` says so.
  void run_until(const std::function<bool()>& done);

 private:
  LocalEngine() = default;
  static net::Task<> run_engine(LocalEngine* self);
  std::unique_ptr<boost::asio::io_context> context_;
  std::unique_ptr<Loop> loop_;
  std::unique_ptr<cpu::Team> team_;
  std::unique_ptr<net::Scope> scope_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::shared_ptr<const text::ChatTemplate> template_;
  std::string template_problem_, description_;
  std::unique_ptr<engine::Engine> engine_;
  uint32_t max_model_len_ = 0;
  uint32_t threads_ = 1;
  cpu::Isa isa_ = cpu::Isa::scalar;
  uint64_t weight_bytes_ = 0, layer_macs_ = 0, head_macs_ = 0;
};

}  // namespace heddle::app
