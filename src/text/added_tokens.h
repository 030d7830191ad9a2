#pragma once
// Finds control and user-defined tokens in text: at each place the longest one, from left to right, as `tokenizers`
// does. A trie over their bytes; built at load, then const and thread-safe.
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "text/vocab.h"

namespace heddle::text {

// [begin, end) of a text where control tokens may be recognised.
struct TrustedRange {
  size_t begin;
  size_t end;
};

class AddedTokens {
 public:
  explicit AddedTokens(const Vocab& vocab);

  struct Match {
    size_t begin = 0;
    size_t end = 0;
    TokenId id = -1;  // -1: none, and begin is the end of the text
  };

  // Texts of SentencePiece models must have blanks in place of U+2581. The first match at or after `from`. A token that
  // does not match in user text must lie in trusted[i...]; the index is moved past ranges that end before the match, so
  // that a walk over a text is linear in it.
  Match next(std::string_view text, size_t from, const std::vector<TrustedRange>& trusted, size_t& i) const;

 private:
  struct Node {
    uint32_t first_child = 0;  // 0: none
    uint32_t next_sibling = 0;
    TokenId id = -1;
    bool in_user_text = false;
    char byte = 0;
  };

  uint32_t child(uint32_t node, char byte) const {
    uint32_t c = nodes_[node].first_child;
    while (c != 0 && nodes_[c].byte != byte) c = nodes_[c].next_sibling;
    return c;
  }

  std::vector<Node> nodes_;
  std::array<uint32_t, 256> root_{};  // first byte -> node, 0: no token starts so
};

}  // namespace heddle::text
