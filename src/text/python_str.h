#pragma once
// Python's str methods over TracedText, as chat templates use them: indices count code points, white space and case are
// Unicode's, and every byte keeps its origin. Pure functions, any thread. Text must be valid UTF-8 and stays valid.
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/traced_text.h"

namespace heddle::text::pystr {

bool valid_utf8(std::string_view text);
char32_t decode(std::string_view text, std::size_t& at);  // at a character's first byte; moves behind it
void encode(char32_t code_point, std::string& out);
std::size_t length(std::string_view text);  // in code points
// Byte offset of the code point with this index; an index at or past the end gives text.size().
std::size_t offset(std::string_view text, std::size_t index);

bool is_space(char32_t c);
bool is_printable(char32_t c);  // as repr() sees it
bool is_digit(char32_t c);
bool is_alphabetic(char32_t c);

enum class Case { upper, lower, capitalize, title, swap };
TracedText change_case(const TracedText& text, Case how);

enum class Side { left, right, both };
// Without `characters`, white space.
TracedText strip(const TracedText& text, Side side, std::optional<std::string_view> characters = std::nullopt);

// max < 0: no limit. An empty separator is the caller's error; none splits at runs of white space.
std::vector<TracedText> split(const TracedText& text, std::optional<std::string_view> separator, long max);
std::vector<TracedText> rsplit(const TracedText& text, std::optional<std::string_view> separator, long max);
std::vector<TracedText> split_lines(const TracedText& text, bool keep_ends);
TracedText replace(const TracedText& text, std::string_view from, const TracedText& to, long max);
std::size_t count(std::string_view text, std::string_view part);

enum class Class { alpha, alnum, digit, decimal, numeric, space, upper, lower, title, ascii, printable, identifier };
bool is_class(std::string_view text, Class which);

}  // namespace heddle::text::pystr
