#include "base/loop.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <utility>

namespace heddle {

void Loop::post(std::function<void()> function) { boost::asio::post(context_, std::move(function)); }

}  // namespace heddle
