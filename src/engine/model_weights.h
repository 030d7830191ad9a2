#pragma once
// The weights of a model, shared by the runners that compute with them: loaded once, given back to the system when the
// last of them sleeps, loaded again when the first wakes. Owner: the runners, together. Loop thread only; loading and
// dropping the files' cached pages happen on a thread of its own, which is started when it is first needed. Loading may
// fail, as often as it likes: the weights stay away, everyone who waited gets the error, and the next one tries again.
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <optional>

#include "base/loop.h"
#include "base/offload.h"
#include "base/result.h"
#include "model/model.h"

namespace heddle::engine {

// Where weights come from and go to. Without `load` they stay for good, and giving them back is a bug.
struct WeightSource {
  std::function<Result<std::unique_ptr<model::Model>>()> load;  // on the thread; the same model as before, or an error
  // After the model is gone: gives back what load() put on the device, all of it or what an error left behind. On the
  // loop, or on the thread right after a load() that failed; no runner computes.
  std::function<void()> unload;
  std::function<void()> drop_file_cache;  // on the thread
};

class ModelWeights {
 public:
  // `executor` is the loop's. `model` is loaded; nobody holds it yet.
  ModelWeights(const boost::asio::any_io_executor& executor, Loop& loop, std::unique_ptr<model::Model> model,
               WeightSource source);
  ModelWeights(const ModelWeights&) = delete;
  ModelWeights& operator=(const ModelWeights&) = delete;

  // Of someone who holds the weights. Another object after each loading.
  const model::Model& model() const { return *model_; }
  bool loaded() const { return model_ != nullptr; }

  void hold();     // while they are loaded
  void let_go();   // the model stays: for a runner that ends
  void release();  // the last one to release unloads
  void drop_file_cache();
  // Holds the weights, which are loaded first if they are not there. Whoever awaits it when this goes must not be
  // resumed.
  boost::asio::awaitable<Result<void>> acquire();

 private:
  void start_loading();
  void on_loaded(Result<std::unique_ptr<model::Model>> loaded);
  void unload();
  Offload& thread();

  Loop& loop_;
  std::unique_ptr<model::Model> model_;
  WeightSource source_;
  uint32_t n_holders_ = 0;
  std::shared_ptr<uint32_t> n_waiting_ = std::make_shared<uint32_t>(0);  // in acquire(); a frame may outlive this
  bool loading_ = false;
  std::optional<Error> error_;              // of the last loading
  boost::asio::steady_timer loading_done_;  // never expires; cancelled to wake acquire()
  std::unique_ptr<Offload> thread_;         // last: its running job uses the others
};

}  // namespace heddle::engine
