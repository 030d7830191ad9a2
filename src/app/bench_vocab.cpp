#include "app/bench_vocab.h"

#include <array>
#include <random>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/check.h"
#include "text/utf8.h"

namespace heddle::app {
namespace {

// GPT-2's spelling of one byte: printable ones stand for themselves, the rest for U+0100 and up (text/byte_alphabet.h).
std::array<std::string, 256> byte_spellings() {
  std::array<std::string, 256> spelling;
  uint32_t next = 0x100;
  for (uint32_t b = 0; b < 256; ++b) {
    const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    const uint32_t c = printable ? b : next++;
    spelling[b] = c < 0x80 ? std::string(1, static_cast<char>(c))
                           : std::string{static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 0x3F))};
  }
  return spelling;
}

// Characters grow byte by byte and pieces character by character, so each is the merge of two before it.
class Builder {
 public:
  Builder() {
    for (const std::string& s : spelling_) {
      tokens_.push_back(s);
      seen_.insert(s);
    }
  }

  size_t size() const { return tokens_.size(); }

  // Adds the piece and what it is made of. Over the size, nothing.
  void add(std::string_view text) {
    std::string piece;
    for (size_t i = 0; i < text.size();) {
      std::string character;
      for (const size_t end = i + text::utf8_length(text[i]); i < end; ++i)
        merge(character, spelling_[static_cast<uint8_t>(text[i])]);
      merge(piece, character);
    }
  }

  std::shared_ptr<const text::Tokenizer> build() const {
    text::VocabData data;
    data.model = "gpt2";
    data.pre = "gpt-2";
    data.tokens.assign(tokens_.begin(), tokens_.end());
    data.types.assign(tokens_.size(), static_cast<int32_t>(text::TokenType::normal));
    data.merges.assign(merges_.begin(), merges_.end());
    auto tokenizer = text::make_tokenizer(data);
    if (!tokenizer) check_failed(__FILE__, __LINE__, "a vocabulary that can be built", tokenizer.error().message);
    return std::move(*tokenizer);
  }

 private:
  void merge(std::string& left, const std::string& right) {
    std::string merge = left + " " + right;
    const bool is_new = !left.empty();
    left += right;
    if (!is_new || size() == kBenchVocabSize || !seen_.insert(left).second) return;
    merges_.push_back(std::move(merge));
    tokens_.push_back(left);
  }

  const std::array<std::string, 256> spelling_ = byte_spellings();
  std::vector<std::string> tokens_, merges_;
  std::unordered_set<std::string> seen_;
};

void append_character(std::string& out, uint32_t c) {
  if (c < 0x800) {
    out += static_cast<char>(0xC0 | c >> 6);
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | c >> 12);
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | c >> 18);
    out += static_cast<char>(0x80 | (c >> 12 & 0x3F));
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
  }
  out += static_cast<char>(0x80 | (c & 0x3F));
}

class Writer {
 public:
  std::string word() {
    constexpr std::array onsets = {"b", "c", "d", "f", "g", "h",  "l",  "m",  "n",  "p",
                                   "r", "s", "t", "v", "w", "st", "th", "tr", "pr", "ch"};
    constexpr std::array cores = {"a", "e", "i", "o", "u", "ea", "ou", "io"};
    constexpr std::array codas = {"", "", "", "n", "r", "s", "t", "l", "nd", "ng", "ment", "ing", "ed", "er"};
    std::string out;
    for (uint32_t n = 1 + below(3); n > 0; --n) {
      out += onsets[below(onsets.size())];
      out += cores[below(cores.size())];
    }
    return out + codas[below(codas.size())];
  }
  std::string number() { return std::to_string(below(10000)); }
  std::string mark() {
    constexpr std::array marks = {"\n", "\n\n", "\r\n", "\t", "  ", "    ", "\"",  "\",", "\":", "{\"", "\"}", "\\n",
                                  "\\", "();",  "),",   "</", "/>", "->",   "...", "--",  ". ",  ", ",  "!",   "?\""};
    return std::string(marks[below(marks.size())]) + marks[below(marks.size())];
  }
  // One to three characters of a script with two, three or four bytes a character.
  std::string foreign() {
    constexpr std::array<std::array<uint32_t, 2>, 5> ranges = {
        {{0x00C0, 0x0100}, {0x0391, 0x03CA}, {0x0410, 0x0450}, {0x4E00, 0x6000}, {0x1F600, 0x1F640}}};
    const auto [first, last] = ranges[below(ranges.size())];
    std::string out;
    for (uint32_t n = 1 + below(3); n > 0; --n) append_character(out, first + below(last - first));
    return out;
  }

 private:
  uint32_t below(size_t n) { return static_cast<uint32_t>(random_() % n); }
  std::mt19937_64 random_{1};
};

}  // namespace

std::shared_ptr<const text::Tokenizer> make_bench_tokenizer() {
  Builder builder;
  Writer writer;
  while (builder.size() < kBenchVocabSize) {
    for (int i = 0; i < 4; ++i) {
      builder.add(" " + writer.word());
      builder.add(writer.word());
    }
    builder.add(writer.number());
    builder.add(writer.mark());
    builder.add(writer.foreign());
  }
  return builder.build();
}

}  // namespace heddle::app
