#include "app/terminal.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace heddle::app {
namespace {

volatile sig_atomic_t g_interrupted = 0;
void interrupt(int) { g_interrupted = 1; }

// While it lives, Ctrl-C sets a flag instead of ending the program.
class CatchInterrupt {
 public:
  CatchInterrupt() {
    g_interrupted = 0;
    struct sigaction action {};
    action.sa_handler = interrupt;
    sigaction(SIGINT, &action, &before_);
  }
  ~CatchInterrupt() { sigaction(SIGINT, &before_, nullptr); }
  CatchInterrupt(const CatchInterrupt&) = delete;
  CatchInterrupt& operator=(const CatchInterrupt&) = delete;

 private:
  struct sigaction before_ {};
};

}  // namespace

int fail_command(std::string_view message) {
  std::fprintf(stderr, "heddle: %.*s\n", static_cast<int>(message.size()), message.data());
  return 1;
}

void TerminalAnswer::on_delta(const engine::Delta& delta) {
  text_.append(delta.text);
  std::fwrite(delta.text.data(), 1, delta.text.size(), stdout);
  std::fflush(stdout);
  if (delta.finish != nullptr) finish_ = *delta.finish;
}

void TerminalAnswer::on_end(const engine::Usage&, const engine::Times&) { ended_ = true; }

Result<std::shared_ptr<TerminalAnswer>> answer(LocalEngine& local, engine::Request request) {
  auto sink = std::make_shared<TerminalAnswer>();
  const std::string id = request.id;
  Result<void, engine::Refusal> submitted = local.engine().submit(std::move(request), sink);
  if (!submitted) return fail(submitted.error().message);
  const CatchInterrupt catching;
  bool aborted = false;
  local.run_until([&] {
    if (g_interrupted != 0 && !aborted) {
      aborted = true;
      local.engine().abort(id);
    }
    return sink->ended();
  });
  return sink;
}

ProgressBar::ProgressBar(std::string label, uint64_t total)
    : label_(std::move(label)), total_(std::max<uint64_t>(total, 1)), is_terminal_(isatty(STDERR_FILENO) == 1) {
  set(0);
}

ProgressBar::~ProgressBar() {
  if (is_terminal_) std::fputs("\r\033[K", stderr);
}

void ProgressBar::set(uint64_t done) {
  const int percent = static_cast<int>(std::min(done, total_) * 100 / total_);
  if (!is_terminal_ || percent == shown_) return;
  shown_ = percent;
  std::string bar(30, ' ');
  std::fill_n(bar.begin(), percent * 30 / 100, '#');
  std::fprintf(stderr, "\r%s [%s] %3d%%", label_.c_str(), bar.c_str(), percent);
}

}  // namespace heddle::app
