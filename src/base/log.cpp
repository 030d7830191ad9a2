#include "base/log.h"

#include <spdlog/async.h>
#include <spdlog/async_logger.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <memory>

namespace heddle::log {
namespace {

// Read on every thread; replaced only by start and stop.
std::atomic<Level> g_level{Level::off};
std::shared_ptr<spdlog::details::thread_pool> g_pool;
std::shared_ptr<spdlog::async_logger> g_logger;

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::debug:
      return spdlog::level::debug;
    case Level::info:
      return spdlog::level::info;
    case Level::warning:
      return spdlog::level::warn;
    case Level::error:
      return spdlog::level::err;
    case Level::off:
      break;
  }
  return spdlog::level::off;
}

}  // namespace

bool parse_level(std::string_view text, Level& level) {
  if (text == "debug")
    level = Level::debug;
  else if (text == "info")
    level = Level::info;
  else if (text == "warning")
    level = Level::warning;
  else if (text == "error")
    level = Level::error;
  else if (text == "off")
    level = Level::off;
  else
    return false;
  return true;
}

void start(Level level) {
  g_pool = std::make_shared<spdlog::details::thread_pool>(8192, 1);
  auto sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>();
  g_logger =
      std::make_shared<spdlog::async_logger>("heddle", sink, g_pool, spdlog::async_overflow_policy::overrun_oldest);
  g_logger->set_level(spdlog::level::trace);
  g_logger->set_pattern("%H:%M:%S.%e %^%L%$ %v");
  g_logger->flush_on(spdlog::level::info);
  g_level.store(level, std::memory_order_release);
}

void flush_and_stop() {
  g_level.store(Level::off, std::memory_order_release);
  if (!g_logger) return;
  g_logger->flush();
  g_logger.reset();
  g_pool.reset();  // joins the writer after it has emptied the queue
}

bool enabled(Level level) { return level >= g_level.load(std::memory_order_acquire) && level != Level::off; }

void write(Level level, std::string_view line) {
  if (enabled(level)) g_logger->log(to_spdlog(level), spdlog::string_view_t(line.data(), line.size()));
}

uint64_t dropped() { return g_pool ? g_pool->overrun_counter() : 0; }

}  // namespace heddle::log
