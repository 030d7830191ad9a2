#include "text/vocab.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <limits>

#include "text/byte_alphabet.h"
#include "text/spm_blank.h"

namespace heddle::text {

namespace {

// Texts by which control tokens that end a turn or a document are known, over the model families that exist. Files
// name eos, but often neither eot nor eom; a chat would run on past the end of its turn.
constexpr std::string_view kEndTexts[] = {
    "<|im_end|>",             // ChatML: Qwen, SmolLM
    "<|eot_id|>",             // Llama 3, end of turn
    "<|eom_id|>",             // Llama 3, end of message: a tool call follows
    "<|end_of_text|>",        // Llama 3, Granite
    "<|endoftext|>",          // GPT-2, Qwen
    "<end_of_turn>",          // Gemma
    "<eos>",                  // Gemma
    "</s>",                   // Llama 2, Mistral
    "<|end|>",                // Phi
    "<|eot|>",                // Llama 4
    "<|END_OF_TURN_TOKEN|>",  // Command R
    "<|end_of_turn|>",        // OpenChat
    "<｜end▁of▁sentence｜>",  // DeepSeek
    "<EOT>",
};

constexpr std::string_view kHtmlElements[] = {
    "a",      "b",   "blockquote", "body",  "caption", "code",   "div",   "em", "footer", "h1", "h2", "h3",
    "h4",     "h5",  "h6",         "html",  "i",       "iframe", "img",   "li", "ol",     "p",  "s",  "span",
    "strong", "sub", "sup",        "table", "tbody",   "td",     "tfoot", "th", "thead",  "tr", "u",  "ul"};

bool is_html_tag(std::string_view text) {
  if (text.size() < 3 || text.front() != '<' || text.back() != '>') return false;
  std::string_view name = text.substr(1, text.size() - 2);
  if (name.front() == '/') name.remove_prefix(1);
  return std::ranges::find(kHtmlElements, name) != std::end(kHtmlElements);
}

// "<0x0A>" -> 10, or -1.
int byte_of(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return -1;
  int value = 0;
  for (const char c : token.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

// Each appends at out and returns the new end; neither is longer than the token.
char* copy(std::string_view token, char* out) {
  std::memcpy(out, token.data(), token.size());
  return out + token.size();
}

char* copy_spaces(std::string_view token, char* out) {
  for (;;) {
    const size_t at = token.find(kSpmBlank);
    out = copy(token.substr(0, at), out);
    if (at == std::string_view::npos) return out;
    *out++ = ' ';
    token.remove_prefix(at + kSpmBlank.size());
  }
}

}  // namespace

Result<Vocab> Vocab::create(const VocabData& data) {
  Vocab v;
  if (data.model == "gpt2") {
    v.kind_ = VocabKind::bpe;
  } else if (data.model == "llama") {
    v.kind_ = VocabKind::spm;
  } else if (data.model.empty()) {
    return fail("tokenizer.ggml.model is missing");
  } else {
    return fail(fmt::format("tokenizer.ggml.model: '{}' is not supported (gpt2, llama)", data.model));
  }
  v.pre_ = data.pre;
  const bool spm = v.kind_ == VocabKind::spm;
  const size_t n = data.tokens.size();
  if (n == 0) return fail("tokenizer.ggml.tokens is missing or empty");
  if (n > 1u << 26) return fail(fmt::format("tokenizer.ggml.tokens has {} entries, more than 2^26", n));
  if (spm && data.types.empty()) return fail("tokenizer.ggml.token_type is missing");
  if (!data.types.empty() && data.types.size() != n)
    return fail(fmt::format("tokenizer.ggml.token_type has {} entries, tokens {}", data.types.size(), n));
  if (spm && data.scores.size() != n)
    return fail(fmt::format("tokenizer.ggml.scores has {} entries, tokens {}", data.scores.size(), n));
  if (spm) v.scores_ = data.scores;

  size_t bytes = 0;
  for (const std::string_view token : data.tokens) bytes += token.size();
  if (bytes > std::numeric_limits<uint32_t>::max()) return fail("tokenizer.ggml.tokens is longer than 4 GiB");
  v.arena_ = std::make_unique_for_overwrite<char[]>(bytes);
  v.offsets_.resize(n + 1);
  v.types_.resize(n);
  char* out = v.arena_.get();
  for (size_t i = 0; i < n; ++i) {
    const std::string_view token = data.tokens[i];
    const int32_t type = data.types.empty() ? 1 : data.types[i];
    if (type < 1 || type > 6) return fail(fmt::format("tokenizer.ggml.token_type[{}] is {}, not 1 to 6", i, type));
    v.types_[i] = static_cast<TokenType>(type);
    v.offsets_[i] = static_cast<uint32_t>(out - v.arena_.get());
    switch (v.types_[i]) {
      case TokenType::byte: {
        const int byte = byte_of(token);
        if (byte < 0)
          return fail(fmt::format("tokenizer.ggml.tokens[{}] has type byte, but is not <0x00> to <0xFF>", i));
        *out++ = static_cast<char>(byte);
        break;
      }
      case TokenType::control:
      case TokenType::unknown:
        out = copy(token, out);
        v.added_.push_back(static_cast<TokenId>(i));
        break;
      case TokenType::user_defined:
        out = spm ? copy_spaces(token, out) : copy(token, out);
        v.added_.push_back(static_cast<TokenId>(i));
        break;
      case TokenType::normal:
      case TokenType::unused:
        out = spm ? copy_spaces(token, out) : decode_byte_alphabet(token, out);
        break;
    }
  }
  v.offsets_[n] = static_cast<uint32_t>(out - v.arena_.get());
  if (auto error = v.set_ids(data)) return fail(std::move(*error));
  v.find_end_tokens();

  v.add_space_prefix_ = spm && data.add_space_prefix.value_or(true);
  v.add_bos_ = data.add_bos.value_or(spm || data.pre.starts_with("llama"));
  v.add_eos_ = data.add_eos.value_or(false);
  return v;
}

std::optional<std::string> Vocab::set_ids(const VocabData& data) {
  struct Row {
    const char* key;
    std::optional<int64_t> value;
    TokenId spm_default;  // GGUF's, for files of kind "llama" without the key
    TokenId* id;
  };
  const Row rows[] = {{"bos", data.bos_id, 1, &bos_},     {"eos", data.eos_id, 2, &eos_},
                      {"eot", data.eot_id, -1, &eot_},    {"eom", data.eom_id, -1, &eom_},
                      {"unknown", data.unk_id, 0, &unk_}, {"padding", data.pad_id, -1, &pad_}};
  for (const Row& row : rows) {
    if (!row.value) {
      if (kind_ == VocabKind::spm && row.spm_default >= 0 && is_special(row.spm_default)) *row.id = row.spm_default;
      continue;
    }
    if (*row.value < 0 || *row.value >= size())
      return fmt::format("tokenizer.ggml.{}_token_id is {}, but there are {} tokens", row.key, *row.value, size());
    *row.id = static_cast<TokenId>(*row.value);
  }
  return std::nullopt;
}

void Vocab::find_end_tokens() {
  const auto add = [this](TokenId id) {
    if (id >= 0 && !is_end(id)) end_tokens_.push_back(id);
  };
  for (const TokenId id : {eos_, eot_, eom_}) add(id);
  for (const TokenId id : added_)
    if (type(id) == TokenType::control && std::ranges::find(kEndTexts, token_bytes(id)) != std::end(kEndTexts)) add(id);
}

bool Vocab::is_end(TokenId id) const { return std::ranges::find(end_tokens_, id) != end_tokens_.end(); }

// User-defined tokens are of two sorts. Runs of blanks, HTML elements and the like are text that happens to have a
// token: a model has never seen it spelled otherwise. Anything else in brackets (<think>, <tool_call>,
// <start_of_image>) is markup of the chat protocol; from a user it is a quotation of that markup and must not act as
// it.
bool Vocab::matches_in_user_text(TokenId id) const {
  if (type(id) != TokenType::user_defined) return false;
  const std::string_view text = token_bytes(id);
  if (text.size() < 3) return true;
  const bool bracketed = (text.front() == '<' && text.back() == '>') || (text.front() == '[' && text.back() == ']');
  return !bracketed || is_html_tag(text);
}

TokenId Vocab::find_special(std::string_view text) const {
  for (const TokenId id : added_)
    if (token_bytes(id) == text) return id;
  return -1;
}

}  // namespace heddle::text
