#pragma once
// Where a text is cut before BPE: scanners written by hand for the regular expressions of known pre-tokenizers. Each
// piece is found by one forward walk, so time is linear for any text. Pure.
//
//   gpt2    's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//   smollm  digits of any script each alone, then gpt2 on what is between them
//   llama3  (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|
//           \s+(?!\S)|\s+
//   qwen2   llama3 with \p{N} in place of \p{N}{1,3}, on the text's NFC form
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "text/unicode_class.h"
#include "text/utf8.h"

namespace heddle::text {

enum class PreTokenizer : uint8_t { gpt2, smollm, llama3, qwen2 };

// By the name in tokenizer.ggml.pre; nullopt if it is none of ours.
std::optional<PreTokenizer> find_pre_tokenizer(std::string_view name);

// Names as listed to a person who gave another one.
std::string_view known_pre_tokenizers();

// Cuts one text. Text must be valid UTF-8 and outlive the scanner.
template <PreTokenizer P>
class PieceScanner {
 public:
  explicit PieceScanner(std::string_view text) : p_(text.data()), size_(text.size()), classes_(unicode_classes()) {}

  bool done() const { return at_ == size_; }

  // The next piece; not when done. Pieces joined are the text.
  std::string_view next() {
    const size_t begin = at_;
    if constexpr (P == PreTokenizer::smollm) {
      // Digits are cut out first, and what is between them is a text of its own for the look-ahead at its end.
      if (begin == limit_) {
        const Char c = at(begin, size_);
        if (is_digit(c)) {
          limit_ = at_ = begin + c.size;
          return {p_ + begin, at_ - begin};
        }
        for (limit_ = begin + c.size; limit_ < size_;) {
          const Char d = at(limit_, size_);
          if (is_digit(d)) break;
          limit_ += d.size;
        }
      }
      at_ = gpt2_end(begin, limit_);
    } else if constexpr (P == PreTokenizer::gpt2) {
      at_ = gpt2_end(begin, size_);
    } else {
      at_ = llama3_end(begin, size_);
    }
    return {p_ + begin, at_ - begin};
  }

 private:
  struct Char {
    uint32_t code;
    uint8_t bits;  // of unicode::
    size_t size;   // 0: the end
    uint8_t kind() const { return bits & unicode::kinds; }
  };

  Char at(size_t i, size_t end) const {
    if (i >= end) return {0, 0, 0};
    size_t size;
    const uint32_t code = utf8_decode(p_ + i, size);
    return {code, classes_[code], size};
  }

  static bool is_digit(const Char& c) { return (c.bits & (unicode::number | unicode::digit_only)) != 0; }
  static bool is_newline(const Char& c) { return c.size != 0 && (c.code == '\n' || c.code == '\r'); }

  // The end of the run of this kind that starts or ends at i.
  size_t run(size_t i, size_t end, uint8_t kind) const {
    for (;;) {
      while (i < end && static_cast<unsigned char>(p_[i]) < 0x80) {
        if ((classes_[static_cast<unsigned char>(p_[i])] & unicode::kinds) != kind) return i;
        ++i;
      }
      const Char c = at(i, end);
      if (c.size == 0 || c.kind() != kind) return i;
      i += c.size;
    }
  }

  // The end of a contraction that starts at the apostrophe at i, or i. U+017F folds to "s".
  size_t contraction(size_t i, size_t end, bool any_case) const {
    const auto letter = [&](size_t k) {
      if (i + k >= end) return '\0';
      const char c = p_[i + k];
      return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
    };
    const char first = letter(1), second = letter(2);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return i + 2;
    if ((first == 'r' || first == 'v') && second == 'e') return i + 3;
    if (first == 'l' && second == 'l') return i + 3;
    if (any_case && first == '\xC5' && second == '\xBF') return i + 3;
    return i;
  }

  // Blanks at i, by the tail of both expressions: all but the last if a word follows, but at least one.
  size_t blanks(size_t i, size_t end) const {
    size_t last = i, stop = i;
    for (Char c = at(i, end); c.size != 0 && c.kind() == unicode::space; c = at(stop, end)) {
      last = stop;
      stop += c.size;
    }
    return stop == end || last == i ? stop : last;
  }

  size_t gpt2_end(size_t i, size_t end) const {
    const Char c = at(i, end);
    if (c.code == '\'') {
      if (const size_t stop = contraction(i, end, false); stop != i) return stop;
    }
    if (c.kind() != unicode::space) return run(i + c.size, end, c.kind());
    if (c.code == ' ') {
      const Char d = at(i + 1, end);
      if (d.size != 0 && d.kind() != unicode::space) return run(i + 1 + d.size, end, d.kind());
    }
    return blanks(i, end);
  }

  size_t llama3_end(size_t i, size_t end) const {
    const Char c = at(i, end);
    if (c.code == '\'') {
      if (const size_t stop = contraction(i, end, true); stop != i) return stop;
    }
    if (c.kind() == unicode::letter) return run(i + c.size, end, unicode::letter);
    if (c.kind() == unicode::number) {
      if constexpr (P == PreTokenizer::qwen2) return i + c.size;
      size_t stop = i + c.size;
      for (int n = 1; n < 3; ++n) {
        const Char d = at(stop, end);
        if (d.size == 0 || d.kind() != unicode::number) break;
        stop += d.size;
      }
      return stop;
    }
    const Char d = at(i + c.size, end);
    if (!is_newline(c) && d.size != 0 && d.kind() == unicode::letter)
      return run(i + c.size + d.size, end, unicode::letter);
    if (c.kind() == unicode::other || (c.code == ' ' && d.size != 0 && d.kind() == unicode::other)) {
      size_t stop = run(i + c.size, end, unicode::other);
      while (is_newline(at(stop, end))) ++stop;
      return stop;
    }
    // Blanks: up to the last line break among them, if there is one.
    size_t stop = i, after_newline = i;
    for (Char b = c; b.size != 0 && b.kind() == unicode::space; b = at(stop, end)) {
      stop += b.size;
      if (is_newline(b)) after_newline = stop;
    }
    return after_newline != i ? after_newline : blanks(i, end);
  }

  const char* p_;
  size_t size_;
  const uint8_t* classes_;
  size_t at_ = 0;
  size_t limit_ = 0;  // smollm: where the text between two digits ends
};

}  // namespace heddle::text
