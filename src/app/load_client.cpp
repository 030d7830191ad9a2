#include "app/load_client.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <charconv>
#include <random>

#include "api/json_text.h"
#include "app/http_stream.h"
#include "base/clock.h"

namespace heddle::app {
namespace asio = boost::asio;
using asio::ip::tcp;
namespace {

constexpr const char* kWords[] = {
    "river",   "stone",  "market",   "window",  "garden", "letter",  "winter",  "engine",    "morning",
    "paper",   "island", "doctor",   "music",   "bridge", "village", "summer",  "teacher",   "forest",
    "kitchen", "story",  "mountain", "answer",  "silver", "harbor",  "number",  "travel",    "quiet",
    "simple",  "early",  "distant",  "careful", "open",   "carries", "follows", "remembers", "builds"};

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto of = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return of(usage.ru_utime) + of(usage.ru_stime);
}

std::string make_prompt(const LoadOptions& options, uint32_t number) {
  std::mt19937_64 random(options.seed * 1000003 + number);
  std::string text;
  for (uint32_t i = 0; i < options.prompt_words; ++i) {
    if (i > 0) text += ' ';
    text += kWords[random() % std::size(kWords)];
  }
  return text;
}

std::string make_request(const LoadOptions& options, uint32_t number) {
  std::string body = "{";
  if (!options.model.empty()) {
    body += "\"model\":";
    api::append_json_string(body, options.model);
    body += ',';
  }
  body += "\"prompt\":";
  api::append_json_string(body, make_prompt(options, number));
  body += fmt::format(
      ",\"max_tokens\":{},\"temperature\":0,\"ignore_eos\":true,\"stream\":true,\"stream_options\":{{\"include_usage\":"
      "true}}}}",
      options.max_tokens);
  const std::string key = options.api_key.empty() ? "" : fmt::format("Authorization: Bearer {}\r\n", options.api_key);
  return fmt::format(
      "POST /v1/completions HTTP/1.1\r\nHost: {}:{}\r\nContent-Type: application/json\r\n{}Content-Length: "
      "{}\r\n\r\n{}",
      options.host, options.port, key, body.size(), body);
}

// The number behind `"name":` in an event, or 0.
uint64_t number_after(std::string_view event, std::string_view name) {
  const size_t at = event.find(name);
  if (at == std::string_view::npos) return 0;
  size_t digit = at + name.size();
  while (digit < event.size() && (event[digit] == ' ' || event[digit] == ':')) ++digit;
  uint64_t value = 0;
  std::from_chars(event.data() + digit, event.data() + event.size(), value);
  return value;
}

struct Run {
  const LoadOptions& options;
  LoadResult result;
  uint32_t next = 0;
  const std::function<void(uint32_t)>& progress;

  void fail_one(std::string reason) {
    ++result.failed;
    if (result.first_error.empty()) result.first_error = std::move(reason);
  }
};

// One request's events, timed as they arrive.
struct Timeline {
  MonotonicTime sent{}, last{};
  uint64_t prompt_tokens = 0, output_tokens = 0;
  uint32_t events = 0;
  bool done = false;
  std::string error;

  void on_event(std::string_view data, Run& run) {
    if (data == "[DONE]") {
      done = true;
      return;
    }
    if (data.find("\"error\"") != std::string_view::npos && data.find("\"choices\"") == std::string_view::npos) {
      error = std::string(data.substr(0, 200));
      return;
    }
    const uint64_t completion = number_after(data, "\"completion_tokens\"");
    if (completion > 0) {
      output_tokens = completion;
      prompt_tokens = number_after(data, "\"prompt_tokens\"");
    }
    if (data.find("\"text\"") == std::string_view::npos) return;  // the usage chunk has no choice
    const MonotonicTime now = Monotonic::now();
    if (events++ == 0)
      run.result.ttft.push_back(seconds(now - sent));
    else
      run.result.itl.push_back(seconds(now - last));
    last = now;
  }
};

// False: the server had closed the idle connection, nothing was lost, ask again on a new one. usable: in, the
// connection was used before; out, it may be used again.
asio::awaitable<bool> one_request(tcp::socket& socket, Run& run, uint32_t number, bool& usable) {
  const bool reused = usable;
  bool heard = false;
  usable = false;
  const std::string request = make_request(run.options, number);
  Timeline timeline;
  timeline.sent = Monotonic::now();
  boost::system::error_code error;
  auto token = asio::redirect_error(asio::use_awaitable, error);
  co_await asio::async_write(socket, asio::buffer(request), token);
  if (error) {
    if (!reused) run.fail_one(error.message());
    co_return !reused;
  }
  HttpStream stream([&timeline, &run](std::string_view data) { timeline.on_event(data, run); });
  std::vector<char> buffer(64 * 1024);
  while (!stream.finished()) {
    const size_t size = co_await socket.async_read_some(asio::buffer(buffer), token);
    if (error && reused && !heard) co_return false;
    if (error) {
      run.fail_one(fmt::format("connection ended early: {}", error.message()));
      co_return true;
    }
    heard = true;
    if (!stream.feed({buffer.data(), size})) {
      run.fail_one("the reply is not HTTP");
      co_return true;
    }
  }
  usable = stream.keep_alive();
  if (stream.status() != 200) {
    run.fail_one(fmt::format("status {}: {}", stream.status(), stream.body().substr(0, 200)));
  } else if (!timeline.error.empty() || !timeline.done) {
    run.fail_one(timeline.error.empty() ? "the stream ended without [DONE]" : timeline.error);
  } else {
    ++run.result.completed;
    run.result.e2e.push_back(seconds(Monotonic::now() - timeline.sent));
    run.result.prompt_tokens += timeline.prompt_tokens;
    run.result.output_tokens += timeline.output_tokens > 0 ? timeline.output_tokens : timeline.events;
  }
  co_return true;
}

// A client that keeps one connection busy until no request is left.
asio::awaitable<void> worker(asio::io_context& loop, Run& run, tcp::resolver::results_type endpoints) {
  tcp::socket socket(loop);
  bool usable = false;
  boost::system::error_code error;
  auto token = asio::redirect_error(asio::use_awaitable, error);
  while (run.next < run.options.requests) {
    const uint32_t number = run.next++;
    bool answered = false;
    while (!answered) {
      if (!usable) {
        socket = tcp::socket(loop);
        co_await asio::async_connect(socket, endpoints, token);
        if (error) {
          run.fail_one(fmt::format("cannot connect: {}", error.message()));
          break;
        }
        socket.set_option(tcp::no_delay(true), error);
      }
      answered = co_await one_request(socket, run, number, usable);
    }
    run.progress(run.result.completed + run.result.failed);
  }
}

}  // namespace

Result<LoadResult> run_load(const LoadOptions& options, const std::function<void(uint32_t)>& progress) {
  asio::io_context loop(1);
  tcp::resolver resolver(loop);
  boost::system::error_code error;
  const auto endpoints = resolver.resolve(options.host, options.port, error);
  if (error) return fail(fmt::format("{}:{}: {}", options.host, options.port, error.message()));
  Run run{options, {}, 0, progress};
  const double cpu_before = cpu_seconds();
  const MonotonicTime start = Monotonic::now();
  uint32_t open = options.concurrency;
  for (uint32_t i = 0; i < options.concurrency; ++i) {
    asio::co_spawn(loop, worker(loop, run, endpoints), [&open, &run](const std::exception_ptr& thrown) {
      --open;
      if (thrown) run.fail_one("a client ended with an exception");
    });
  }
  loop.run();
  LoadResult& result = run.result;
  result.seconds = seconds(Monotonic::now() - start);
  result.client_cpu_seconds = cpu_seconds() - cpu_before;
  for (auto* times : {&result.ttft, &result.itl, &result.e2e}) std::sort(times->begin(), times->end());
  return std::move(result);
}

Result<void> parse_url(const std::string& url, std::string& host, std::string& port) {
  std::string rest = url;
  if (rest.starts_with("http://"))
    rest = rest.substr(7);
  else if (rest.find("://") != std::string::npos)
    return fail(fmt::format("'{}': only http:// is supported", url));
  rest = rest.substr(0, rest.find('/'));
  const size_t colon = rest.rfind(':');
  const bool bracketed = rest.starts_with("[");
  host = rest;
  port = "80";
  if (colon != std::string::npos && (!bracketed || colon > rest.rfind(']'))) {
    host = rest.substr(0, colon);
    port = rest.substr(colon + 1);
  }
  if (bracketed && host.ends_with("]")) host = host.substr(1, host.size() - 2);
  if (host.empty() || port.empty()) return fail(fmt::format("'{}' is not a URL such as http://127.0.0.1:8000", url));
  return {};
}

double percentile(const std::vector<double>& sorted, double share) {
  if (sorted.empty()) return 0;
  const auto index = static_cast<size_t>(share * static_cast<double>(sorted.size() - 1) + 0.5);
  return sorted[std::min(index, sorted.size() - 1)];
}

}  // namespace heddle::app
