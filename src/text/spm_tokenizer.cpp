#include "text/spm_tokenizer.h"

#include <algorithm>
#include <bit>
#include <string>

#include "text/utf8.h"
#include "text/word_cache.h"

namespace heddle::text {

namespace {

// Higher scores get lower ranks; kNoRank is never reached.
uint32_t rank_of(float score) {
  const auto bits = std::bit_cast<uint32_t>(score + 0.0F);  // -0 is 0
  const uint32_t ascending = bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
  return std::min(~ascending, kNoRank - 1);
}

}  // namespace

Result<std::unique_ptr<const Tokenizer>> SpmTokenizer::create(Vocab vocab) {
  for (TokenId id = 0; id < vocab.size(); ++id)
    if (vocab.score(id) != vocab.score(id))
      return fail("tokenizer.ggml.scores[" + std::to_string(id) + "] is not a number");
  std::unique_ptr<SpmTokenizer> tokenizer(new SpmTokenizer(std::move(vocab)));
  if (!tokenizer->has_bytes_ && tokenizer->vocab_.unk() < 0)
    return fail("tokenizer.ggml.tokens has neither all byte tokens <0x00> to <0xFF> nor an unknown token");
  return tokenizer;
}

SpmTokenizer::SpmTokenizer(Vocab vocab)
    : Tokenizer(std::move(vocab)),
      number_(WordCache::next_tokenizer()),
      map_(vocab_, static_cast<size_t>(vocab_.size())) {
  byte_token_.fill(-1);
  for (TokenId id = 0; id < vocab_.size(); ++id) {
    const std::string_view bytes = vocab_.token_bytes(id);
    const TokenType type = vocab_.type(id);
    if (type == TokenType::byte) byte_token_[static_cast<unsigned char>(bytes[0])] = id;
    // Merges do not make user-defined tokens: text either became one before, or must not.
    if (type != TokenType::normal || bytes.empty()) continue;
    map_.insert(id);
    longest_ = std::max(longest_, bytes.size());
    for (size_t i = 1; i < bytes.size(); ++i)
      if (!utf8_is_continuation(bytes[i]))
        joins_.set(static_cast<size_t>(static_cast<unsigned char>(bytes[i - 1])) << 8 |
                   static_cast<unsigned char>(bytes[i]));
  }
  has_bytes_ = std::ranges::all_of(byte_token_, [](TokenId id) { return id >= 0; });
}

void SpmTokenizer::encode_plain(std::string_view text, std::vector<TokenId>& ids, EncodeCounters& counters) const {
  WordCache& cache = WordCache::of_thread(number_);
  MergeBuffers buffers;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = begin + 1;
    while (end < text.size() && (utf8_is_continuation(text[end]) || may_join(text[end - 1], text[end]))) ++end;
    const std::string_view word = text.substr(begin, end - begin);
    begin = end;
    // Without bytes, what an unknown character gives depends on what came before it.
    if (word.size() > WordCache::kMaxBytes || !has_bytes_) {
      encode_word(word, buffers, ids, counters);
      continue;
    }
    const WordCache::Key key(word);
    if (cache.append(key, ids)) continue;
    const size_t before = ids.size();
    encode_word(word, buffers, ids, counters);
    cache.store(key, std::span(ids).subspan(before));
  }
}

void SpmTokenizer::encode_word(std::string_view word, MergeBuffers& buffers, std::vector<TokenId>& ids,
                               EncodeCounters& counters) const {
  std::vector<Symbol>& symbols = buffers.symbols;
  symbols.clear();
  for (size_t i = 0; i < word.size();) {
    const size_t size = utf8_length(word[i]);
    symbols.push_back({static_cast<uint32_t>(i), static_cast<uint32_t>(size), -1});
    i += size;
  }
  const auto pair_of = [&](const Symbol& left, const Symbol& right) -> Merge {
    const size_t size = size_t{left.size} + right.size;
    if (size > longest_) return {};
    const TokenId id = map_.find(word.substr(left.begin, size));
    return id < 0 ? Merge{} : Merge{rank_of(vocab_.score(id)), id};
  };
  if (symbols.size() <= kScanLimit) {
    symbols.resize(merge_by_scan(symbols, pair_of, counters.merge_steps));
  } else {
    merge_by_heap(buffers, pair_of, counters.merge_steps);
  }
  for (const Symbol& symbol : symbols) {
    const std::string_view bytes = word.substr(symbol.begin, symbol.size);
    const TokenId id = symbol.id >= 0 ? symbol.id : map_.find(bytes);
    if (id >= 0) {
      ids.push_back(id);
    } else {
      spell(bytes, ids);
    }
  }
}

// A character that is no token: its bytes or, in a vocabulary without bytes, one unknown token for a run of such.
void SpmTokenizer::spell(std::string_view character, std::vector<TokenId>& ids) const {
  if (has_bytes_) {
    for (const char c : character) ids.push_back(byte_token_[static_cast<unsigned char>(c)]);
  } else if (ids.empty() || ids.back() != vocab_.unk()) {
    ids.push_back(vocab_.unk());
  }
}

}  // namespace heddle::text
