#pragma once
// Token ids to text, one token at a time. One per sequence, used by one thread; the vocabulary must outlive it. Every
// chunk is valid UTF-8; bytes are held back only while they can still become a character; joined chunks equal
// decode() of all ids: the tokens' bytes put together, each maximal ill-formed part read as U+FFFD. Cannot fail.
#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "base/ids.h"
#include "text/vocab.h"

namespace heddle::text {

struct DetokenizeOptions {
  bool skip_special = true;
  // The ids are a whole text, not the continuation of a prompt: drop the space that encoding put in front
  // (SentencePiece models with add_space_prefix only).
  bool at_text_start = false;
};

class Detokenizer {
 public:
  explicit Detokenizer(const Vocab& vocab, DetokenizeOptions options = {});

  // Appends what became certain; nothing else is allocated.
  void feed(TokenId id, std::string& out);
  // The end of the sequence: what is held back can no longer become a character.
  void flush(std::string& out);

 private:
  void feed_bytes(std::string_view bytes, std::string& out);

  const Vocab* vocab_;
  bool skip_special_;
  bool drop_space_;  // the next byte shown is dropped if it is a space
  uint8_t n_held_ = 0;
  std::array<char, 3> held_{};  // a proper prefix of a character
};

std::string decode(const Vocab& vocab, std::span<const TokenId> ids, DetokenizeOptions options = {});

}  // namespace heddle::text
