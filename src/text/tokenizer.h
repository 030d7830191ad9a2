#pragma once
// Text to token ids. Owned by the app, shared by api (prompts) and engine (output); const and thread-safe: long prompts
// are encoded on the offload pool. Ids equal Hugging Face `tokenizers` on the same string. Encoding cannot fail: bytes
// that are not UTF-8 are read as U+FFFD. Time is linear in the text up to a logarithm, whatever the text is.
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "text/added_tokens.h"
#include "text/vocab.h"

namespace heddle::text {

// A piece of a prompt. Adjacent pieces are one text: pre-tokenisation and merges do not see the border. A control token
// is recognised only where every character of it lies in pieces with parse_special, so a user cannot write one.
struct EncodeSpan {
  std::string_view text;
  bool parse_special = false;  // true: written by the template or by a trusted caller
};

struct EncodeOptions {
  bool add_bos = false;  // put vocab().bos() in front, if the model has one
  bool add_eos = false;
};

// For tests of T41: heap operations, pair look-ups and symbols scanned.
struct EncodeCounters {
  uint64_t merge_steps = 0;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  std::vector<TokenId> encode(std::string_view text, bool parse_special, EncodeOptions options = {},
                              EncodeCounters* counters = nullptr) const;
  std::vector<TokenId> encode(std::span<const EncodeSpan> spans, EncodeOptions options = {},
                              EncodeCounters* counters = nullptr) const;

  const Vocab& vocab() const { return vocab_; }
  std::string_view token_bytes(TokenId id) const { return vocab_.token_bytes(id); }
  bool is_special(TokenId id) const { return vocab_.is_special(id); }
  int32_t vocab_size() const { return vocab_.size(); }
  std::span<const TokenId> end_tokens() const { return vocab_.end_tokens(); }

 protected:
  explicit Tokenizer(Vocab vocab);
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Text without added tokens, valid UTF-8.
  virtual void encode_plain(std::string_view text, std::vector<TokenId>& ids, EncodeCounters& counters) const = 0;

  const Vocab vocab_;

 private:
  const AddedTokens added_;
};

// Refuses, by name, a tokenizer model, pre-tokenizer or merge that it does not know.
Result<std::unique_ptr<const Tokenizer>> make_tokenizer(const VocabData& data);

}  // namespace heddle::text
