#include "engine/model_weights.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <utility>

#include "base/check.h"

namespace heddle::engine {
namespace {

struct Counted {
  explicit Counted(std::shared_ptr<uint32_t> counter) : n(std::move(counter)) { ++*n; }
  ~Counted() { --*n; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  std::shared_ptr<uint32_t> n;
};

}  // namespace

ModelWeights::ModelWeights(const boost::asio::any_io_executor& executor, Loop& loop,
                           std::unique_ptr<model::Model> model, WeightSource source)
    : loop_(loop), model_(std::move(model)), source_(std::move(source)), loading_done_(executor) {
  HEDDLE_CHECK(model_ != nullptr);
  loading_done_.expires_at(boost::asio::steady_timer::time_point::max());
}

void ModelWeights::hold() {
  HEDDLE_CHECK(loaded());
  ++n_holders_;
}

void ModelWeights::let_go() {
  HEDDLE_CHECK_OP(n_holders_, >, 0u);
  --n_holders_;
}

void ModelWeights::release() {
  let_go();
  if (n_holders_ == 0 && *n_waiting_ == 0) unload();
}

void ModelWeights::unload() {
  HEDDLE_CHECK(source_.load && source_.unload);
  model_.reset();
  source_.unload();
}

void ModelWeights::drop_file_cache() {
  if (source_.drop_file_cache) thread().submit(source_.drop_file_cache, [] {});
}

boost::asio::awaitable<Result<void>> ModelWeights::acquire() {
  {
    const Counted waiting(n_waiting_);
    if (!loaded() && !loading_) start_loading();
    while (loading_) co_await loading_done_.async_wait(boost::asio::as_tuple(boost::asio::use_awaitable));
  }
  if (!loaded()) co_return tl::unexpected(*error_);
  hold();
  co_return Result<void>{};
}

void ModelWeights::start_loading() {
  loading_ = true;
  error_.reset();
  auto loaded = std::make_shared<Result<std::unique_ptr<model::Model>>>(fail(""));  // std::function must be copyable
  thread().submit(
      [this, loaded] {
        *loaded = source_.load();
        if (!*loaded) source_.unload();
      },
      [this, loaded] { on_loaded(std::move(*loaded)); });
}

void ModelWeights::on_loaded(Result<std::unique_ptr<model::Model>> loaded) {
  loading_ = false;
  if (loaded) {
    model_ = std::move(*loaded);
    // Those who waited may be gone.
    if (*n_waiting_ == 0) unload();
  } else {
    error_ = std::move(loaded.error());
  }
  loading_done_.cancel();
}

Offload& ModelWeights::thread() {
  if (thread_ == nullptr) thread_ = std::make_unique<Offload>(loop_);
  return *thread_;
}

}  // namespace heddle::engine
