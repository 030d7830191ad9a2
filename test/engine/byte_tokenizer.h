#pragma once
// A tokenizer whose ids are bytes, with two end tokens: text in tests is spelt byte by byte.
#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace heddle::engine {

constexpr TokenId kEos = 256, kEot = 257, kVocab = 259;

inline std::shared_ptr<const text::Tokenizer> byte_tokenizer() {
  std::vector<std::string> spelling;
  uint32_t next = 0x100;
  for (uint32_t b = 0; b < 256; ++b) {
    const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    const uint32_t c = printable ? b : next++;
    spelling.push_back(c < 0x80 ? std::string(1, static_cast<char>(c))
                                : std::string{static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 0x3F))});
  }
  spelling.insert(spelling.end(), {"<eos>", "<eot>", "zz"});  // a merge there must be
  text::VocabData data;
  data.merges = {"z z"};
  data.model = "gpt2";
  data.pre = "gpt-2";
  for (const std::string& s : spelling) {
    data.tokens.push_back(s);
    data.types.push_back(s.size() == 5 ? 3 : 1);
  }
  data.eos_id = kEos;
  data.eot_id = kEot;
  auto tokenizer = text::make_tokenizer(data);
  REQUIRE_MESSAGE(tokenizer.has_value(), tokenizer.error().message);
  return std::move(*tokenizer);
}

inline std::vector<TokenId> bytes(std::string_view text) {
  std::vector<TokenId> ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

}  // namespace heddle::engine
