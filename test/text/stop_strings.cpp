#include "text/stop_strings.h"

#include <doctest/doctest.h>

#include <random>

#include "text/utf8.h"

namespace heddle::text {
namespace {

using Strings = std::vector<std::string>;

// Chunks as they come out; the last is what flush releases.
Strings run(const Strings& stops, const Strings& fed, bool include = false) {
  StopStrings matcher(stops, include);
  Strings out;
  for (const std::string& text : fed) matcher.feed(text, out.emplace_back());
  matcher.flush(out.emplace_back());
  return out;
}

std::string join(const Strings& parts) {
  std::string all;
  for (const std::string& part : parts) all += part;
  return all;
}

// By the definition: the match that ends first, the first in the list for one end; all text before it.
std::string by_definition(const Strings& stops, const std::string& text, bool include) {
  for (size_t end = 1; end <= text.size(); ++end)
    for (const std::string& stop : stops)
      if (end >= stop.size() && text.compare(end - stop.size(), stop.size(), stop) == 0)
        return text.substr(0, include ? end : end - stop.size());
  return text;
}

TEST_CASE("A stop string over several tokens never leaks its beginning (T04)") {
  CHECK(run({"GHIJK"}, {"D", "EFG", "HI", "JK", "L"}) == Strings{"D", "EF", "", "", "", ""});
  CHECK(run({"GHIJK"}, {"xGHI", "x"}) == Strings{"x", "GHIx", ""});
  // It starts inside a token and ends inside the next.
  CHECK(run({"GHIJK"}, {"FGH", "IJKLM"}) == Strings{"F", "", ""});
  // Its beginning at the very end of the output is flushed.
  CHECK(run({"GHIJK"}, {"abcGHIJ"}) == Strings{"abc", "GHIJ"});
}

TEST_CASE("With include_stop all of the stop string is sent and nothing after it, though the token holds more (T04)") {
  CHECK(run({"GHIJK"}, {"FGH", "IJKLM", "N"}, true) == Strings{"F", "GHIJK", "", ""});
}

TEST_CASE("The match that ends first wins, and the first in the list for one end (T04)") {
  CHECK(join(run({"stop now", "stop"}, {"please stop now"})) == "please ");
  CHECK(join(run({"bc", "abc"}, {"xabc"})) == "xa");
  CHECK(join(run({"abc", "bc"}, {"xabc"})) == "x");
  CHECK(join(run({"abcd", "bc"}, {"xab", "cd"})) == "xa");
  StopStrings matcher(Strings{"x", "b", "ab"});
  std::string out;
  CHECK(matcher.feed("a", out) == std::nullopt);
  CHECK(matcher.feed("b", out) == 1);
  CHECK(out == "a");
  CHECK(matcher.matched() == 1);
}

TEST_CASE("No more is held back than may still be the beginning of a stop string") {
  CHECK(run({"aab"}, {"a", "a", "a", "a", "b"}) == Strings{"", "", "a", "a", "", ""});
  CHECK(run({"\n\n"}, {"x\n", "y\n", "\n"}) == Strings{"x", "\ny", "", ""});
  CHECK(run({}, {"x", "y"}) == Strings{"x", "y", ""});
}

TEST_CASE("The result is that of the definition, however the text is cut, and every chunk is valid UTF-8") {
  const uint32_t seed = std::random_device()();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  const Strings letters = {"a", "b", "é", "è", "🫠"};
  const auto word = [&](size_t most) {
    std::string out;
    for (size_t n = 1 + random() % most; n > 0; --n) out += letters[random() % letters.size()];
    return out;
  };
  for (int i = 0; i < 5000; ++i) {
    Strings stops, fed;
    for (size_t n = random() % 6; n > 0; --n) stops.push_back(word(4));
    for (size_t n = random() % 12; n > 0; --n) fed.push_back(word(3));
    for (const bool include : {false, true}) {
      const Strings out = run(stops, fed, include);
      REQUIRE(join(out) == by_definition(stops, join(fed), include));
      for (const std::string& chunk : out) REQUIRE(utf8_valid_prefix(chunk) == chunk.size());
    }
  }
}

}  // namespace
}  // namespace heddle::text
