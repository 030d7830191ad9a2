#include "base/loop.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <utility>

namespace heddle {
namespace {

class AsioLoop final : public Loop {
 public:
  explicit AsioLoop(boost::asio::io_context& context) : context_(context) {}
  void post(std::function<void()> work) override { boost::asio::post(context_, std::move(work)); }
  bool is_loop_thread() const override { return context_.get_executor().running_in_this_thread(); }

 private:
  boost::asio::io_context& context_;
};

}  // namespace

std::unique_ptr<Loop> make_loop(boost::asio::io_context& context) { return std::make_unique<AsioLoop>(context); }

}  // namespace heddle
