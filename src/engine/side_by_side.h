#pragma once
// Awaits several coroutines at once, on the caller's executor: done when all are, in whatever order they end. If some
// throw, the first of them is thrown on when all have ended.
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/deferred.hpp>
#include <boost/asio/experimental/parallel_group.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>
#include <utility>
#include <vector>

namespace heddle::engine {

inline boost::asio::awaitable<void> side_by_side(std::vector<boost::asio::awaitable<void>> work) {
  namespace asio = boost::asio;
  const auto executor = co_await asio::this_coro::executor;
  using Start = decltype(asio::co_spawn(executor, std::move(work.front()), asio::deferred));
  std::vector<Start> starts;
  starts.reserve(work.size());
  for (auto& one : work) starts.push_back(asio::co_spawn(executor, std::move(one), asio::deferred));
  auto group = asio::experimental::make_parallel_group(std::move(starts));
  const auto ended = co_await group.async_wait(asio::experimental::wait_for_all(), asio::use_awaitable);
  for (const std::exception_ptr& thrown : std::get<1>(ended))
    if (thrown) std::rethrow_exception(thrown);
}

template <typename T>
boost::asio::awaitable<void> store_result(boost::asio::awaitable<T> work, T* result) {
  T value = co_await std::move(work);
  *result = std::move(value);
}

// The results, in the order of `work`.
template <typename T>
boost::asio::awaitable<std::vector<T>> side_by_side(std::vector<boost::asio::awaitable<T>> work) {
  std::unique_ptr<T[]> results(new T[work.size()]());  // no vector: that of bool has no addresses
  std::vector<boost::asio::awaitable<void>> stores;
  for (size_t i = 0; i < work.size(); ++i) stores.push_back(store_result(std::move(work[i]), &results[i]));
  co_await side_by_side(std::move(stores));
  co_return std::vector<T>(std::make_move_iterator(results.get()),
                           std::make_move_iterator(results.get() + work.size()));
}

}  // namespace heddle::engine
