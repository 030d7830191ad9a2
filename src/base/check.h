#pragma once
// Bugs: a check that aborts with both values. Never used on input from outside.
#include <fmt/format.h>

#include <string>

namespace heddle {

[[noreturn]] void check_failed(const char* file, int line, const char* expression, const std::string& detail);

}  // namespace heddle

#define HEDDLE_CHECK(cond)                                   \
  do {                                                       \
    if (!(cond)) [[unlikely]]                                \
      ::heddle::check_failed(__FILE__, __LINE__, #cond, ""); \
  } while (false)

#define HEDDLE_CHECK_OP(a, op, b)                                                                                   \
  do {                                                                                                              \
    const auto& heddle_a_ = (a);                                                                                    \
    const auto& heddle_b_ = (b);                                                                                    \
    if (!(heddle_a_ op heddle_b_)) [[unlikely]]                                                                     \
      ::heddle::check_failed(__FILE__, __LINE__, #a " " #op " " #b, fmt::format("{} vs {}", heddle_a_, heddle_b_)); \
  } while (false)
