#pragma once
// Logging for people, to stderr. Asynchronous and bounded: a full pipe drops the oldest lines and counts them, it never
// blocks the loop. Any thread. spdlog is an affair of log.cpp alone.
#include <fmt/format.h>

#include <cstdint>
#include <string_view>
#include <utility>

namespace heddle::log {

enum class Level : uint8_t { debug, info, warning, error, off };

// "debug", "info", "warning", "error", "off"; anything else leaves `level` alone and returns false.
bool parse_level(std::string_view text, Level& level);

void start(Level level);  // once, before the first line; lines before it are dropped
void flush_and_stop();    // writes what is queued; lines after it are dropped
bool enabled(Level level);
void write(Level level, std::string_view line);
uint64_t dropped();  // lines lost to a full queue so far

template <class... A>
void print(Level level, fmt::format_string<A...> format, A&&... args) {
  if (enabled(level)) write(level, fmt::format(format, std::forward<A>(args)...));
}
template <class... A>
void debug(fmt::format_string<A...> format, A&&... args) {
  print(Level::debug, format, std::forward<A>(args)...);
}
template <class... A>
void info(fmt::format_string<A...> format, A&&... args) {
  print(Level::info, format, std::forward<A>(args)...);
}
template <class... A>
void warn(fmt::format_string<A...> format, A&&... args) {
  print(Level::warning, format, std::forward<A>(args)...);
}
template <class... A>
void error(fmt::format_string<A...> format, A&&... args) {
  print(Level::error, format, std::forward<A>(args)...);
}

}  // namespace heddle::log
