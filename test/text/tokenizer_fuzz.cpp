// Any bytes are text: encoding them must end, give ids of the vocabulary, and decode to the text that was read; spans
// and chunks must not matter where they should not. And any vocabulary is refused or works.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "small_vocab.h"
#include "text/detokenizer.h"
#include "text/nfc.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace {

using namespace heddle;
using namespace heddle::text;

std::unique_ptr<const Tokenizer> byte_level_tokenizer(const char* pre) {
  SmallVocab vocab = byte_level(pre);
  for (const auto& [left, right] : {std::pair{"a", "a"},
                                    {"aa", "aa"},
                                    {"t", "h"},
                                    {"th", "e"},
                                    {" ", "the"},
                                    {" ", " "},
                                    {"\xE6", "\xBC"},
                                    {"\xE6\xBC", "\xA2"},
                                    {"\n", "\n"},
                                    {"1", "2"}})
    vocab.merge(left, right);
  vocab.control("<|im_start|>");
  vocab.control("<|im_end|>");
  vocab.user_defined("<think>");
  vocab.user_defined("    ");
  return vocab.build();
}

std::unique_ptr<const Tokenizer> sentence_piece_tokenizer(bool prefix) {
  SmallVocab vocab = sentence_piece(prefix);
  float score = 0;
  for (const char* piece :
       {"\u2581the", "aa", "aaaa", "th", "he", "the", "\u2581t", "漢", "a", "t", "h", "e", "\u2581", "é", "12"})
    vocab.add(piece, TokenType::normal, --score);
  vocab.control("[INST]");
  vocab.user_defined("  ");
  vocab.user_defined("<h1>");
  vocab.user_defined("<x>");
  return vocab.build();
}

void check_text(const Tokenizer& tokenizer, std::string_view text) {
  const Vocab& vocab = tokenizer.vocab();
  std::string read;
  append_utf8_replaced(text, read);
  const std::vector<TokenId> plain = tokenizer.encode(text, false);
  HEDDLE_CHECK(plain == tokenizer.encode(read, false));
  for (const TokenId id : plain) HEDDLE_CHECK(id >= 0 && id < vocab.size() && !vocab.is_special(id));

  const std::vector<TokenId> trusted = tokenizer.encode(text, true);
  if (vocab.kind() == VocabKind::bpe) {
    std::string want = vocab.pre() == "qwen2" ? to_nfc(read) : read;
    HEDDLE_CHECK(decode(vocab, plain, {.skip_special = false}) == want);
    if (vocab.pre() != "qwen2") HEDDLE_CHECK(decode(vocab, trusted, {.skip_special = false}) == want);
  }

  // Cut into spans at character borders, untrusted text is the same text.
  std::vector<EncodeSpan> spans;
  const std::string_view view = read;
  for (size_t at = 0, i = 0; at < view.size(); ++i) {
    size_t end = std::min(view.size(), at + 1 + i % 5);
    while (end < view.size() && utf8_is_continuation(view[end])) ++end;
    spans.push_back({view.substr(at, end - at), false});
    at = end;
  }
  HEDDLE_CHECK(tokenizer.encode(spans) == plain);

  Detokenizer detokenizer(vocab);
  std::string joined;
  for (const TokenId id : trusted) {
    const size_t before = joined.size();
    detokenizer.feed(id, joined);
    const std::string_view chunk = std::string_view(joined).substr(before);
    HEDDLE_CHECK(utf8_valid_prefix(chunk) == chunk.size());
  }
  detokenizer.flush(joined);
  HEDDLE_CHECK(joined == decode(vocab, trusted));
}

// Lines of the input as tokens and merges.
void check_vocabulary(std::string_view bytes) {
  VocabData data;
  data.model = bytes[0] % 2 == 0 ? "gpt2" : "llama";
  data.pre = "smollm";
  if (bytes[1] % 4 != 0) data.bos_id = static_cast<signed char>(bytes[1]);
  bytes.remove_prefix(2);
  while (!bytes.empty()) {
    const size_t end = std::min(bytes.find('\n'), bytes.size());
    const std::string_view line = bytes.substr(0, end);
    bytes.remove_prefix(std::min(bytes.size(), end + 1));
    if (!line.empty() && line[0] == 'm') {
      data.merges.push_back(line.substr(1));
      continue;
    }
    data.tokens.push_back(line.substr(std::min<size_t>(line.size(), 1)));
    data.types.push_back(line.empty() ? 1 : line[0] % 8);
    data.scores.push_back(static_cast<float>(line.size()));
  }
  const auto tokenizer = make_tokenizer(data);
  if (!tokenizer) {
    HEDDLE_CHECK(!tokenizer.error().message.empty());
    return;
  }
  for (const bool special : {false, true})
    for (const TokenId id : (*tokenizer)->encode("the a\u2581b \U0001FAE0 <x>", special))
      HEDDLE_CHECK(id >= 0 && id < (*tokenizer)->vocab_size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto tokenizers = [] {
    std::vector<std::unique_ptr<const Tokenizer>> all;
    for (const char* pre : {"gpt-2", "smollm", "llama-bpe", "qwen2"}) all.push_back(byte_level_tokenizer(pre));
    for (const bool prefix : {false, true}) all.push_back(sentence_piece_tokenizer(prefix));
    return all;
  }();
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  for (const auto& tokenizer : tokenizers) check_text(*tokenizer, bytes);
  if (size >= 2) check_vocabulary(bytes);
  return 0;
}
