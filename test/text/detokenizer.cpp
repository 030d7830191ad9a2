#include "text/detokenizer.h"

#include <doctest/doctest.h>

#include <random>

#include "small_vocab.h"
#include "text/utf8.h"

namespace heddle::text {
namespace {

using Ids = std::vector<TokenId>;

std::vector<std::string> chunks(const Vocab& vocab, const Ids& ids, DetokenizeOptions options = {}) {
  std::vector<std::string> out;
  Detokenizer detokenizer(vocab, options);
  for (const TokenId id : ids) detokenizer.feed(id, out.emplace_back());
  detokenizer.flush(out.emplace_back());
  return out;
}

using Chunks = std::vector<std::string>;

TEST_CASE("Ill-formed parts are the longest prefixes of characters, each one U+FFFD") {
  struct Row {
    std::string bytes, text;
  };
  const std::string r = "\uFFFD";
  // Python: bytes.decode("utf-8", "replace")
  const Row rows[] = {
      {"a\xE2\x82", "a" + r},
      {"\xE2\x82z", r + "z"},
      {"\xE2\x28\xA1", r + "(" + r},
      {"\xF0\x9F\x92\xF0\x9F\x92\xA9", r + "💩"},
      {"\xC0\xAF", r + r},
      {"\xED\xA0\x80", r + r + r},
      {"\xF4\x90\x80\x80", r + r + r + r},
      {"\xF0\x80\x80", r + r + r},
      {"\xE0\x9F\xBF", r + r + r},
      {"\x80\xBF", r + r},
      {"\xFE\xFF", r + r},
      {"\xEF\xBF\xBD", r},
      {std::string("\0é", 3), std::string("\0é", 3)},
  };
  for (const Row& row : rows) {
    std::string text;
    append_utf8_replaced(row.bytes, text);
    CHECK(text == row.text);
    CHECK(utf8_valid_prefix(text) == text.size());
  }
}

TEST_CASE("Bytes are held back only while they can still become a character (T01)") {
  const Vocab v = Vocab::create(byte_level("gpt-2").data).value();
  CHECK(chunks(v, {'a', 0xE2, 0x82, 0xAC, 'b'}) == Chunks{"a", "", "", "€", "b", ""});
  // The next byte cannot continue: the held ones go at once, and it with them.
  CHECK(chunks(v, {0xE2, 0x82, 'z'}) == Chunks{"", "", "\uFFFDz", ""});
  CHECK(chunks(v, {0xE2, 0x82, 0xC3, 0xA9}) == Chunks{"", "", "\uFFFD", "é", ""});
  CHECK(chunks(v, {0x80}) == Chunks{"\uFFFD", ""});
  CHECK(chunks(v, {0xE0, 0x80}) == Chunks{"", "\uFFFD\uFFFD", ""});
  CHECK(chunks(v, {0xF0, 0x9F}) == Chunks{"", "", "\uFFFD"});
}

TEST_CASE("What stands before the first byte of a character goes out at once (T01)") {
  SmallVocab vocab = byte_level("gpt-2");
  const TokenId space_and_lead = vocab.add(in_byte_alphabet(" \xF0\x9F"));
  const TokenId rest_and_more = vocab.add(in_byte_alphabet("\xAB\xA0!\xE2"));
  const Vocab v = Vocab::create(vocab.data).value();
  CHECK(chunks(v, {space_and_lead, rest_and_more}) == Chunks{" ", "🫠!", "\uFFFD"});
}

TEST_CASE("Chunks are valid UTF-8 and joined they are the whole, however bytes fall into tokens") {
  SmallVocab vocab = byte_level("gpt-2");
  const std::string all = "a é€🫠\xE2\x82\xF0\x9F\x92\xC3\xED\xA0";
  for (size_t begin = 0; begin < all.size(); ++begin)
    for (size_t n = 2; n <= 7 && begin + n <= all.size(); ++n) vocab.add(in_byte_alphabet(all.substr(begin, n)));
  const TokenId control = vocab.control("<|x|>");
  const Vocab v = Vocab::create(vocab.data).value();
  const uint32_t seed = std::random_device()();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (int i = 0; i < 2000; ++i) {
    Ids ids;
    std::string bytes, shown;
    for (size_t n = random() % 40; n > 0; --n) {
      const auto id = static_cast<TokenId>(random() % static_cast<uint32_t>(v.size()));
      ids.push_back(id);
      shown += v.token_bytes(id);
      if (id != control) bytes += v.token_bytes(id);
    }
    for (const bool skip : {false, true}) {
      std::string joined, want;
      for (const std::string& chunk : chunks(v, ids, {.skip_special = skip})) {
        REQUIRE(utf8_valid_prefix(chunk) == chunk.size());
        joined += chunk;
      }
      append_utf8_replaced(skip ? bytes : shown, want);
      REQUIRE(joined == want);
      REQUIRE(decode(v, ids, {.skip_special = skip}) == want);
    }
  }
}

TEST_CASE("Control tokens are left out or shown, user-defined ones always shown, unknown ids give nothing") {
  SmallVocab vocab = byte_level("gpt-2");
  const TokenId end = vocab.control("<|im_end|>"), think = vocab.user_defined("<think>");
  const Vocab v = Vocab::create(vocab.data).value();
  const Ids ids = {think, 'a', end, v.size() + 5, -1, 'b'};
  CHECK(decode(v, ids) == "<think>ab");
  CHECK(decode(v, ids, {.skip_special = false}) == "<think>a<|im_end|>b");
  // A character goes on behind a token that is left out.
  CHECK(decode(v, Ids{0xC3, end, 0xA9}) == "é");
}

TEST_CASE("The blank in front is dropped at the start of a text only, and once (T11)") {
  SmallVocab vocab = sentence_piece(true);
  const TokenId a = vocab.add("\u2581a"), space = vocab.add("\u2581"), inst = vocab.control("[INST]");
  const Vocab v = Vocab::create(vocab.data).value();
  const auto whole = [&](const Ids& ids, bool skip = true) {
    return decode(v, ids, {.skip_special = skip, .at_text_start = true});
  };
  CHECK(decode(v, Ids{a, a}) == " a a");
  CHECK(whole({a, a}) == "a a");
  CHECK(whole({v.bos(), a}) == "a");
  CHECK(whole({v.bos(), a}, false) == "<s>a");
  CHECK(whole({space, a}) == " a");
  CHECK(whole({inst, a}) == " a");
  CHECK(whole({3 + 'x', a}) == "x a");
  const Vocab plain = Vocab::create(sentence_piece(false).data).value();
  CHECK(decode(plain, Ids{3 + ' ', 3 + 'x'}, {.at_text_start = true}) == " x");
}

}  // namespace
}  // namespace heddle::text
