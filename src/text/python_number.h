#pragma once
// Numbers as Python writes and reads them. Pure functions, any thread.
#include <optional>
#include <string>
#include <string_view>

#include "text/jinja_value.h"

namespace heddle::text::jinja {

std::string integer_text(Integer value);
std::string float_text(double value);                                   // repr(): 1.0, 1e-05, inf, nan
std::string fixed_text(double value, int precision, char conversion);   // e, f or g as in printf
std::optional<Integer> parse_integer(std::string_view text, int base);  // int(text, base), white space and _ as there
std::optional<double> parse_float(std::string_view text);               // float(text)
std::optional<Integer> integer_of(double value);                        // int(value); nothing for inf, nan, too large
// Python's round(): halves go to the even neighbour, on the exact decimal value.
double round_to(double value, int digits);

}  // namespace heddle::text::jinja
