#pragma once
// What the terminal commands share: text to stdout as it comes, a progress bar on stderr, one line of error.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "app/local_engine.h"
#include "engine/output.h"

namespace heddle::app {

int fail_command(std::string_view message);  // "heddle: MESSAGE" to stderr; returns 1

// Writes an answer to stdout as it is generated, and keeps it.
class TerminalAnswer final : public engine::OutputSink {
 public:
  void on_delta(const engine::Delta& delta) override;
  void on_end(const engine::Usage& usage, const engine::Times& times) override;
  bool ended() const { return ended_; }
  const std::string& text() const { return text_; }
  const engine::Finish& finish() const { return finish_; }

 private:
  std::string text_;
  engine::Finish finish_;
  bool ended_ = false;
};

// Submits and runs to the end. Ctrl-C aborts the answer.
Result<std::shared_ptr<TerminalAnswer>> answer(LocalEngine& local, engine::Request request);

// Rewrites one line; silent when stderr is no terminal.
class ProgressBar {
 public:
  ProgressBar(std::string label, uint64_t total);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  void set(uint64_t done);

 private:
  std::string label_;
  uint64_t total_;
  int shown_ = -1;  // percent
  bool is_terminal_;
};

}  // namespace heddle::app
