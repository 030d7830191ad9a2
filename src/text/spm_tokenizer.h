#pragma once
// SentencePiece BPE (Llama 2, Mistral, Gemma): a text starts as characters, and the adjacent pair that makes the token
// with the highest score is merged until none is left; what is no token in the end is spelled in byte tokens. Blanks
// are handled as they are, not as U+2581, which reads as a blank. See tokenizer.h.
#include <array>
#include <bitset>
#include <memory>
#include <string_view>
#include <vector>

#include "text/bpe_merge.h"
#include "text/token_map.h"
#include "text/tokenizer.h"

namespace heddle::text {

class SpmTokenizer final : public Tokenizer {
 public:
  static Result<std::unique_ptr<const Tokenizer>> create(Vocab vocab);

 private:
  explicit SpmTokenizer(Vocab vocab);

  void encode_plain(std::string_view text, std::vector<TokenId>& ids, EncodeCounters& counters) const override;
  void encode_word(std::string_view word, MergeBuffers& buffers, std::vector<TokenId>& ids,
                   EncodeCounters& counters) const;
  void spell(std::string_view character, std::vector<TokenId>& ids) const;

  bool may_join(char left, char right) const {
    return joins_[static_cast<size_t>(static_cast<unsigned char>(left)) << 8 | static_cast<unsigned char>(right)];
  }

  uint64_t number_;  // of this tokenizer in the process, for WordCache
  TokenMap map_;
  size_t longest_ = 0;  // bytes of the longest token
  std::array<TokenId, 256> byte_token_;
  bool has_bytes_ = false;  // all of them
  // Does any token have these two bytes beside each other, the second starting a character? Where none has, no merge
  // can reach across: the text may be cut there into words that are merged, and remembered, on their own.
  std::bitset<65536> joins_;
};

}  // namespace heddle::text
