#pragma once
// Byte-level BPE with a merge list (GPT-2, Llama 3, Qwen, SmolLM): text is cut by the pre-tokenizer, each piece starts
// as bytes, and the adjacent pair that stands first in the merge list is merged until none is left. See tokenizer.h.
#include <array>
#include <memory>
#include <string_view>
#include <vector>

#include "text/bpe_merge.h"
#include "text/merge_table.h"
#include "text/pretokenizer.h"
#include "text/token_map.h"
#include "text/tokenizer.h"

namespace heddle::text {

class WordCache;

class BpeTokenizer final : public Tokenizer {
 public:
  static Result<std::unique_ptr<const Tokenizer>> create(Vocab vocab, std::span<const std::string_view> merges);

 private:
  BpeTokenizer(Vocab vocab, PreTokenizer pre, size_t n_merges);
  Result<void> add_merges(std::span<const std::string_view> merges);

  void encode_plain(std::string_view text, std::vector<TokenId>& ids, EncodeCounters& counters) const override;
  template <PreTokenizer P>
  void encode_pieces(std::string_view text, std::vector<TokenId>& ids, EncodeCounters& counters) const;
  void encode_piece(std::string_view piece, MergeBuffers& buffers, std::vector<TokenId>& ids,
                    EncodeCounters& counters) const;

  PreTokenizer pre_;
  bool whole_first_;  // a piece that is a token is taken whole, merges or not
  uint64_t number_;   // of this tokenizer in the process, for WordCache
  TokenMap map_;
  MergeTable merges_;
  std::array<TokenId, 256> byte_token_;  // -1: the vocabulary lacks the byte
};

}  // namespace heddle::text
