#pragma once
// The parts of Boost.Asio that this room uses, under short names. One io_context run by one thread is the strand, so
// coroutines are typed with its executor: no type-erased executor is copied on the way of a byte.
//
// House rules for coroutines (g++ 12 and Asio 1.26): named functions that take values; no capturing lambda coroutine;
// name an awaited value before using it; every completion's error is looked at; everything is spawned through
// net/scope.h.
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/basic_waitable_timer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>

namespace heddle::net {

namespace asio = boost::asio;
using ErrorCode = boost::system::error_code;
using Executor = asio::io_context::executor_type;

template <class T = void>
using Task = asio::awaitable<T, Executor>;

using Timer =
    asio::basic_waitable_timer<std::chrono::steady_clock, asio::wait_traits<std::chrono::steady_clock>, Executor>;

// Completion token: the operation's values, error code first, never an exception.
constexpr asio::as_tuple_t<asio::use_awaitable_t<Executor>> as_values{asio::use_awaitable_t<Executor>{}};

}  // namespace heddle::net
