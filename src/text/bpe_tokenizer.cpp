#include "text/bpe_tokenizer.h"

#include <fmt/format.h>

#include <string>

#include "text/byte_alphabet.h"
#include "text/nfc.h"
#include "text/word_cache.h"

namespace heddle::text {

Result<std::unique_ptr<const Tokenizer>> BpeTokenizer::create(Vocab vocab, std::span<const std::string_view> merges) {
  if (vocab.pre().empty())
    return fail(fmt::format("tokenizer.ggml.pre is missing: the pre-tokenizer is not guessed (known: {})",
                            known_pre_tokenizers()));
  const auto pre = find_pre_tokenizer(vocab.pre());
  if (!pre)
    return fail(
        fmt::format("tokenizer.ggml.pre: '{}' is not supported (known: {})", vocab.pre(), known_pre_tokenizers()));
  if (merges.empty()) return fail("tokenizer.ggml.merges is missing or empty");
  if (merges.size() > 1u << 26)
    return fail(fmt::format("tokenizer.ggml.merges has {} entries, more than 2^26", merges.size()));
  std::unique_ptr<BpeTokenizer> tokenizer(new BpeTokenizer(std::move(vocab), *pre, merges.size()));
  if (auto added = tokenizer->add_merges(merges); !added) return tl::unexpected(std::move(added.error()));
  return tokenizer;
}

BpeTokenizer::BpeTokenizer(Vocab vocab, PreTokenizer pre, size_t n_merges)
    : Tokenizer(std::move(vocab)),
      pre_(pre),
      whole_first_(pre == PreTokenizer::llama3),
      number_(WordCache::next_tokenizer()),
      map_(vocab_, static_cast<size_t>(vocab_.size())),
      merges_(n_merges) {
  for (TokenId id = 0; id < vocab_.size(); ++id)
    if (vocab_.type(id) == TokenType::normal && !vocab_.token_bytes(id).empty()) map_.insert(id);
  // Some models list tokens made by merges as user-defined.
  for (const TokenId id : vocab_.added_tokens())
    if (vocab_.type(id) == TokenType::user_defined && !vocab_.token_bytes(id).empty()) map_.insert(id);
  for (int b = 0; b < 256; ++b) {
    const char byte = static_cast<char>(b);
    byte_token_[static_cast<size_t>(b)] = map_.find({&byte, 1});
  }
}

Result<void> BpeTokenizer::add_merges(std::span<const std::string_view> merges) {
  std::string bytes;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const std::string_view merge = merges[rank];
    // The alphabet has no blank, so the first one divides.
    const size_t blank = merge.find(' ');
    if (blank == std::string_view::npos || blank == 0 || blank + 1 == merge.size())
      return fail(fmt::format("tokenizer.ggml.merges[{}] is not two tokens with a blank between", rank));
    bytes.resize(merge.size());
    char* const middle = decode_byte_alphabet(merge.substr(0, blank), bytes.data());
    char* const end = decode_byte_alphabet(merge.substr(blank + 1), middle);
    const auto n_left = static_cast<size_t>(middle - bytes.data());
    const std::string_view whole(bytes.data(), static_cast<size_t>(end - bytes.data()));
    const TokenId left = map_.find(whole.substr(0, n_left));
    const TokenId right = map_.find(whole.substr(n_left));
    const TokenId made = map_.find(whole);
    if (left < 0 || right < 0 || made < 0)
      return fail(fmt::format("tokenizer.ggml.merges[{}]: '{}' needs a token that tokenizer.ggml.tokens lacks", rank,
                              merge.substr(0, 200)));
    merges_.insert(left, right, {static_cast<uint32_t>(rank), made});
  }
  return {};
}

void BpeTokenizer::encode_plain(std::string_view text, std::vector<TokenId>& ids, EncodeCounters& counters) const {
  switch (pre_) {
    case PreTokenizer::gpt2:
      return encode_pieces<PreTokenizer::gpt2>(text, ids, counters);
    case PreTokenizer::smollm:
      return encode_pieces<PreTokenizer::smollm>(text, ids, counters);
    case PreTokenizer::llama3:
      return encode_pieces<PreTokenizer::llama3>(text, ids, counters);
    case PreTokenizer::qwen2:
      if (surely_nfc(text)) return encode_pieces<PreTokenizer::qwen2>(text, ids, counters);
      return encode_pieces<PreTokenizer::qwen2>(to_nfc(text), ids, counters);
  }
}

template <PreTokenizer P>
void BpeTokenizer::encode_pieces(std::string_view text, std::vector<TokenId>& ids, EncodeCounters& counters) const {
  WordCache& cache = WordCache::of_thread(number_);
  MergeBuffers buffers;
  for (PieceScanner<P> scanner(text); !scanner.done();) {
    const std::string_view piece = scanner.next();
    if (piece.size() > WordCache::kMaxBytes) {
      encode_piece(piece, buffers, ids, counters);
      continue;
    }
    const WordCache::Key key(piece);
    if (cache.append(key, ids)) continue;
    const size_t before = ids.size();
    encode_piece(piece, buffers, ids, counters);
    cache.store(key, std::span(ids).subspan(before));
  }
}

void BpeTokenizer::encode_piece(std::string_view piece, MergeBuffers& buffers, std::vector<TokenId>& ids,
                                EncodeCounters& counters) const {
  if (whole_first_) {
    if (const TokenId id = map_.find(piece); vocab_.type(id) == TokenType::normal) {
      ids.push_back(id);
      return;
    }
  }
  std::vector<Symbol>& symbols = buffers.symbols;
  symbols.clear();
  // A byte that the vocabulary lacks is dropped, as `tokenizers` does: SmolLM2 has no token for some control characters
  // and for the lead byte of unassigned planes.
  for (const char c : piece)
    if (const TokenId id = byte_token_[static_cast<unsigned char>(c)]; id >= 0) symbols.push_back({0, 1, id});
  const auto pair_of = [this](const Symbol& left, const Symbol& right) { return merges_.find(left.id, right.id); };
  if (symbols.size() <= kScanLimit) {
    symbols.resize(merge_by_scan(symbols, pair_of, counters.merge_steps));
  } else {
    merge_by_heap(buffers, pair_of, counters.merge_steps);
  }
  for (const Symbol& symbol : symbols) ids.push_back(symbol.id);
}

}  // namespace heddle::text
