#pragma once
// Vocabularies of a few tokens for tests, owning their strings. Byte-level: ids 0 to 255 are the bytes, then one token
// a merge, then added tokens. SentencePiece: <unk> <s> </s>, the 256 bytes (3 to 258), then what the test adds.
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/tokenizer.h"

namespace heddle::text {

inline std::string in_byte_alphabet(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) {
    const auto b = static_cast<unsigned char>(c);
    const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    uint32_t point = b;
    if (!printable) point = b <= 0x20 ? 0x100u + b : b <= 0xA0 ? 0x121u + (b - 0x7Fu) : 0x143u;
    if (point < 0x80) {
      out += static_cast<char>(point);
    } else {
      out += static_cast<char>(0xC0 | point >> 6);
      out += static_cast<char>(0x80 | (point & 0x3F));
    }
  }
  return out;
}

class SmallVocab {
 public:
  VocabData data;

  std::string_view own(std::string text) { return strings_.emplace_back(std::move(text)); }
  TokenId add(std::string text, TokenType type = TokenType::normal, float score = 0) {
    data.tokens.push_back(own(std::move(text)));
    data.types.push_back(static_cast<int32_t>(type));
    if (data.model == "llama") data.scores.push_back(score);
    return static_cast<TokenId>(data.tokens.size() - 1);
  }
  TokenId control(std::string text) { return add(std::move(text), TokenType::control); }
  TokenId user_defined(std::string text) { return add(std::move(text), TokenType::user_defined); }

  // Byte-level only: bytes that exist, or are made by an earlier merge.
  TokenId merge(std::string_view left, std::string_view right) {
    data.merges.push_back(own(in_byte_alphabet(left) + " " + in_byte_alphabet(right)));
    return add(in_byte_alphabet(std::string(left) + std::string(right)));
  }

  std::unique_ptr<const Tokenizer> build() const {
    auto tokenizer = make_tokenizer(data);
    if (!tokenizer) throw std::runtime_error(tokenizer.error().message);
    return std::move(*tokenizer);
  }
  std::string error() const {
    const auto tokenizer = make_tokenizer(data);
    return tokenizer ? "" : tokenizer.error().message;
  }

 private:
  std::deque<std::string> strings_;
};

inline SmallVocab byte_level(std::string pre) {
  SmallVocab vocab;
  vocab.data.model = "gpt2";
  vocab.data.pre = std::move(pre);
  for (int b = 0; b < 256; ++b) vocab.add(in_byte_alphabet(std::string(1, static_cast<char>(b))));
  return vocab;
}

inline SmallVocab sentence_piece(bool space_prefix) {
  SmallVocab vocab;
  vocab.data.model = "llama";
  vocab.data.pre = "default";
  vocab.data.add_space_prefix = space_prefix;
  vocab.add("<unk>", TokenType::unknown);
  vocab.control("<s>");
  vocab.control("</s>");
  constexpr char digits[] = "0123456789ABCDEF";
  for (int b = 0; b < 256; ++b) vocab.add(std::string("<0x") + digits[b >> 4] + digits[b & 15] + ">", TokenType::byte);
  return vocab;
}

}  // namespace heddle::text
