#pragma once
// The loop as rooms below the network see it: a place to post work to, without a word of Asio. One thread runs it, and
// engine state is touched on that thread only (invariant loop-only).
#include <functional>
#include <memory>

namespace boost::asio {
class io_context;
}

namespace heddle {

class Loop {
 public:
  virtual ~Loop() = default;
  // Runs `work` on the loop thread, later: never inside this call. Any thread. Work posted by one thread keeps its
  // order; between two posted works the loop looks for I/O that is ready. Work still queued when the loop ends is
  // dropped.
  virtual void post(std::function<void()> work) = 0;
  virtual bool is_loop_thread() const = 0;
};

// The loop that `context` is. The context must outlive it; exactly one thread runs the context.
std::unique_ptr<Loop> make_loop(boost::asio::io_context& context);

}  // namespace heddle
