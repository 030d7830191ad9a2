#include "text/pretokenizer.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "text/nfc.h"
#include "text/unicode_class.h"

namespace heddle::text {
namespace {

template <PreTokenizer P>
std::string cut(std::string_view text) {
  std::string joined;
  for (PieceScanner<P> scanner(text); !scanner.done();) {
    if (!joined.empty()) joined += '|';
    joined += scanner.next();
  }
  return joined;
}

std::string cut(PreTokenizer p, std::string_view text) {
  switch (p) {
    case PreTokenizer::gpt2:
      return cut<PreTokenizer::gpt2>(text);
    case PreTokenizer::smollm:
      return cut<PreTokenizer::smollm>(text);
    case PreTokenizer::llama3:
      return cut<PreTokenizer::llama3>(text);
    case PreTokenizer::qwen2:
      return cut<PreTokenizer::qwen2>(text);
  }
  return "";
}

// Expected pieces are those of `tokenizers` 0.23.3 with the patterns in pretokenizer.h: Split(isolated), and for gpt2
// and smollm ByteLevel(use_regex) behind Digits(individual_digits).
TEST_CASE("Texts are cut where the regular expressions of the four pre-tokenizers cut them") {
  struct Row {
    const char *text, *gpt2, *smollm, *llama3, *qwen2;
  };
  const Row rows[] = {
      {"I'LL say 'twas it's", "I|'|LL| say| '|twas| it|'s", "I|'|LL| say| '|twas| it|'s", "I|'LL| say| '|twas| it|'s",
       "I|'LL| say| '|twas| it|'s"},
      {"a1234567b", "a|1234567|b", "a|1|2|3|4|5|6|7|b", "a|123|456|7|b", "a|1|2|3|4|5|6|7|b"},
      {"x  y", "x| | y", "x| | y", "x| | y", "x| | y"},
      {"  \n \n  z", "  \n \n | z", "  \n \n | z", "  \n \n| | z", "  \n \n| | z"},
      {" ", " ", " ", " ", " "},
      {"\t\tif", "\t|\t|if", "\t|\t|if", "\t|\tif", "\t|\tif"},
      {"foo(x):\n\n\n  y", "foo|(|x|):|\n\n\n | y", "foo|(|x|):|\n\n\n | y", "foo|(x|):\n\n\n| | y",
       "foo|(x|):\n\n\n| | y"},
      {"1.5%!\r\n", "1|.|5|%!|\r\n", "1|.|5|%!|\r\n", "1|.|5|%!\r\n", "1|.|5|%!\r\n"},
      {"a\u00a0\u00a0b", "a|\u00a0|\u00a0|b", "a|\u00a0|\u00a0|b", "a|\u00a0|\u00a0b", "a|\u00a0|\u00a0b"},
      {"e\u0301 漢字12", "e|\u0301| 漢字|12", "e|\u0301| 漢字|1|2", "e|\u0301| 漢字|12", "e|\u0301| 漢字|1|2"},
      {"'ſ 's", "'|ſ| '|s", "'|ſ| '|s", "'ſ| '|s", "'ſ| '|s"},
      {"٣٤ ½x", "٣٤| ½|x", "٣|٤| |½|x", "٣٤| |½|x", "٣|٤| |½|x"},
      {" 12 3", " 12| 3", " |1|2| |3", " |12| |3", " |1|2| |3"},
      {"!!\n", "!!|\n", "!!|\n", "!!\n", "!!\n"},
      {"", "", "", "", ""},
  };
  for (const Row& row : rows) {
    CHECK(cut(PreTokenizer::gpt2, row.text) == row.gpt2);
    CHECK(cut(PreTokenizer::smollm, row.text) == row.smollm);
    CHECK(cut(PreTokenizer::llama3, row.text) == row.llama3);
    CHECK(cut(PreTokenizer::qwen2, row.text) == row.qwen2);
  }
}

TEST_CASE("Pre-tokenizers are known by the names that GGUF files use, and by no others") {
  CHECK(find_pre_tokenizer("gpt-2") == PreTokenizer::gpt2);
  CHECK(find_pre_tokenizer("smollm") == PreTokenizer::smollm);
  CHECK(find_pre_tokenizer("llama-bpe") == PreTokenizer::llama3);
  CHECK(find_pre_tokenizer("qwen2") == PreTokenizer::qwen2);
  for (const char* name : {"", "default", "qwen", "qwen35", "gpt2", "deepseek-llm", "QWEN2"})
    CHECK_FALSE(find_pre_tokenizer(name).has_value());
}

TEST_CASE("Character classes cover the planes") {
  const uint8_t* classes = unicode_classes();
  CHECK((classes[0x61] & unicode::kinds) == unicode::letter);
  CHECK((classes[0x37] & unicode::kinds) == unicode::number);
  CHECK((classes[0x0A] & unicode::kinds) == unicode::space);
  CHECK((classes[0x5F] & unicode::kinds) == unicode::other);
  CHECK((classes[0x1C] & unicode::kinds) == unicode::other);  // a separator for Python, not for the expressions
  CHECK((classes[0x3000] & unicode::kinds) == unicode::space);
  CHECK((classes[0x323AF] & unicode::kinds) == unicode::letter);
  CHECK((classes[0x11DE0] & (unicode::kinds | unicode::digit_only)) == unicode::digit_only);
  CHECK(classes[0x10FFFF] == unicode::other);
}

TEST_CASE("Normalisation composes, reorders marks and leaves the rest alone") {
  struct Row {
    const char *text, *nfc;
  };
  const Row rows[] = {
      {"plain", "plain"},
      {"e\u0301", "\u00e9"},
      {"\u212b", "\u00c5"},
      {"xe\u0301y\u0301z", "x\u00e9\u00fdz"},
      {"\u1e60\u0323", "\u1e68"},
      {"\u1112\u1161\u11ab", "\ud55c"},
      {"\u0301\u0323 a", "\u0323\u0301 a"},
      {"q\u0307\u0323\u0323\u0307", "q\u0323\u0323\u0307\u0307"},
      {"\u0344", "\u0308\u0301"},
      {"", ""},
  };
  for (const Row& row : rows) {
    CHECK(to_nfc(row.text) == row.nfc);
    CHECK(to_nfc(row.nfc) == row.nfc);
    if (std::string_view(row.text) != row.nfc) CHECK_FALSE(surely_nfc(row.text));
  }
  CHECK(surely_nfc("na\u00efve 漢字 🫠"));
}

}  // namespace
}  // namespace heddle::text
