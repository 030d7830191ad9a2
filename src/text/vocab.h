#pragma once
// The vocabulary of a model: what each token id stands for, which ids are special, which end a turn. Built once at load
// from plain data (VocabData, filled by the weight-file reader), then const: any thread may read it. Creation fails
// with one line that names the GGUF key. All bytes live in one arena, so a vocabulary of 262k tokens is made in
// milliseconds.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace heddle::text {

// Numbers of GGUF's tokenizer.ggml.token_type.
enum class TokenType : uint8_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

enum class VocabKind : uint8_t {
  bpe,  // tokenizer.ggml.model "gpt2": byte-level BPE with a merge list
  spm,  // tokenizer.ggml.model "llama": SentencePiece BPE by scores, byte fallback
};

// Straight from the file, unchecked. Views need to live only until Vocab::create or make_tokenizer returns.
struct VocabData {
  std::string model;                     // tokenizer.ggml.model
  std::string pre;                       // tokenizer.ggml.pre; empty: the key is missing
  std::vector<std::string_view> tokens;  // tokenizer.ggml.tokens, in GGUF's spelling
  std::vector<float> scores;             // tokenizer.ggml.scores; needed by "llama" only
  std::vector<int32_t> types;            // tokenizer.ggml.token_type; empty: the key is missing
  std::vector<std::string_view> merges;  // tokenizer.ggml.merges, "left right"; needed by "gpt2" only
  // Each nullopt where the key is missing.
  std::optional<int64_t> bos_id, eos_id, eot_id, eom_id, unk_id, pad_id;
  std::optional<bool> add_bos, add_eos, add_space_prefix;
};

class Vocab {
 public:
  static Result<Vocab> create(const VocabData& data);

  VocabKind kind() const { return kind_; }
  const std::string& pre() const { return pre_; }
  int32_t size() const { return static_cast<int32_t>(types_.size()); }

  // What the token adds to the output: bytes, not always whole characters. Control tokens give their text, e.g.
  // "<|im_end|>". Empty for ids outside the vocabulary (models may have more rows than tokens).
  std::string_view token_bytes(TokenId id) const {
    if (id < 0 || id >= size()) return {};
    const auto i = static_cast<size_t>(id);
    return {arena_.get() + offsets_[i], offsets_[i + 1] - offsets_[i]};
  }
  // Ids outside the vocabulary are `unused`.
  TokenType type(TokenId id) const {
    return id < 0 || id >= size() ? TokenType::unused : types_[static_cast<size_t>(id)];
  }
  // Hidden from users unless asked for: control and unknown. User-defined tokens (<think>) are text.
  bool is_special(TokenId id) const {
    const TokenType t = type(id);
    return t == TokenType::control || t == TokenType::unknown;
  }
  // May text that a user wrote become this token? False for control tokens, and for user-defined ones that are markup
  // of the chat protocol rather than text (see vocab.cpp).
  bool matches_in_user_text(TokenId id) const;
  float score(TokenId id) const { return scores_.empty() ? 0.0F : scores_[static_cast<size_t>(id)]; }

  // -1 where the model has none.
  TokenId bos() const { return bos_; }
  TokenId eos() const { return eos_; }
  TokenId eot() const { return eot_; }
  TokenId eom() const { return eom_; }
  TokenId unk() const { return unk_; }
  TokenId pad() const { return pad_; }
  // Every id that ends a turn, eos first where there is one: eos, eot and eom of the file, and control tokens with a
  // well-known text (the list is in vocab.cpp), since files often lack the last two keys.
  std::span<const TokenId> end_tokens() const { return end_tokens_; }
  bool is_end(TokenId id) const;

  // What the model was trained to see; callers decide (Tokenizer::encode takes an explicit argument).
  bool add_bos() const { return add_bos_; }
  bool add_eos() const { return add_eos_; }
  bool add_space_prefix() const { return add_space_prefix_; }

  // The control or user-defined token with exactly this text, or -1.
  TokenId find_special(std::string_view text) const;
  // Ids of all control, unknown and user-defined tokens, ascending.
  std::span<const TokenId> added_tokens() const { return added_; }

 private:
  Vocab() = default;
  std::optional<std::string> set_ids(const VocabData& data);
  void find_end_tokens();

  VocabKind kind_ = VocabKind::bpe;
  std::string pre_;
  std::unique_ptr<char[]> arena_;
  std::vector<uint32_t> offsets_;  // [tokens + 1] into arena_
  std::vector<TokenType> types_;   // [tokens]
  std::vector<float> scores_;      // [tokens], empty for bpe
  std::vector<TokenId> added_, end_tokens_;
  TokenId bos_ = -1, eos_ = -1, eot_ = -1, eom_ = -1, unk_ = -1, pad_ = -1;
  bool add_bos_ = false, add_eos_ = false, add_space_prefix_ = false;
};

}  // namespace heddle::text
