#include "text/vocab.h"

#include <doctest/doctest.h>

#include <functional>
#include <limits>

#include "small_vocab.h"

namespace heddle::text {
namespace {

std::vector<TokenId> ends(const SmallVocab& vocab) {
  const Vocab v = Vocab::create(vocab.data).value();
  return {v.end_tokens().begin(), v.end_tokens().end()};
}

TEST_CASE("A vocabulary that is wrong is refused in one line that names the key") {
  struct Row {
    const char* message;
    std::function<void(VocabData&)> spoil;
  };
  const Row rows[] = {
      {"tokenizer.ggml.model is missing", [](VocabData& d) { d.model = ""; }},
      {"tokenizer.ggml.model: 'bert' is not supported (gpt2, llama)", [](VocabData& d) { d.model = "bert"; }},
      {"tokenizer.ggml.tokens is missing or empty", [](VocabData& d) { d.tokens.clear(); }},
      {"tokenizer.ggml.token_type is missing", [](VocabData& d) { d.types.clear(); }},
      {"tokenizer.ggml.token_type has 258 entries, tokens 259", [](VocabData& d) { d.types.pop_back(); }},
      {"tokenizer.ggml.token_type[4] is 7, not 1 to 6", [](VocabData& d) { d.types[4] = 7; }},
      {"tokenizer.ggml.token_type[4] is 0, not 1 to 6", [](VocabData& d) { d.types[4] = 0; }},
      {"tokenizer.ggml.scores has 258 entries, tokens 259", [](VocabData& d) { d.scores.pop_back(); }},
      {"tokenizer.ggml.scores[5] is not a number",
       [](VocabData& d) { d.scores[5] = std::numeric_limits<float>::quiet_NaN(); }},
      {"tokenizer.ggml.tokens[3] has type byte, but is not <0x00> to <0xFF>",
       [](VocabData& d) { d.tokens[3] = "<0x0g>"; }},
      {"tokenizer.ggml.bos_token_id is 259, but there are 259 tokens", [](VocabData& d) { d.bos_id = 259; }},
      {"tokenizer.ggml.eom_token_id is -1, but there are 259 tokens", [](VocabData& d) { d.eom_id = -1; }},
      {"tokenizer.ggml.padding_token_id is 4294967295, but there are 259 tokens",
       [](VocabData& d) { d.pad_id = 0xFFFFFFFF; }},
  };
  for (const Row& row : rows) {
    SmallVocab vocab = sentence_piece(true);
    row.spoil(vocab.data);
    CHECK(vocab.error() == row.message);
  }
}

TEST_CASE("A vocabulary that can spell no unknown character is refused") {
  SmallVocab vocab;
  vocab.data.model = "llama";
  vocab.add("a");
  CHECK(vocab.error() == "tokenizer.ggml.tokens has neither all byte tokens <0x00> to <0xFF> nor an unknown token");
}

TEST_CASE("The end set is eos, eot and eom of the file, then control tokens with a known text, each once") {
  SmallVocab vocab = byte_level("gpt-2");
  const TokenId im_end = vocab.control("<|im_end|>");
  const TokenId other = vocab.control("<|stop|>");
  const TokenId eot = vocab.control("<|eot_id|>");
  const TokenId turn = vocab.control("<end_of_turn>");
  vocab.user_defined("<|endoftext|>");  // not a control token
  vocab.control("<|im_start|>");
  vocab.add("</s>");  // a word
  CHECK(ends(vocab) == std::vector<TokenId>{im_end, eot, turn});
  vocab.data.eos_id = eot;
  vocab.data.eom_id = other;
  CHECK(ends(vocab) == std::vector<TokenId>{eot, other, im_end, turn});
  const Vocab v = Vocab::create(vocab.data).value();
  CHECK(v.is_end(other));
  CHECK_FALSE(v.is_end(other + 4));
  CHECK(v.eos() == eot);
  CHECK(v.bos() == -1);
}

TEST_CASE("Missing keys of a SentencePiece file have GGUF's defaults, those of a byte-level file none") {
  const Vocab spm = Vocab::create(sentence_piece(true).data).value();
  CHECK(spm.bos() == 1);
  CHECK(spm.eos() == 2);
  CHECK(spm.unk() == 0);
  CHECK(spm.pad() == -1);
  CHECK(spm.add_bos());
  CHECK(spm.add_space_prefix());
  SmallVocab no_prefix = sentence_piece(false);
  no_prefix.data.add_bos = false;
  CHECK_FALSE(Vocab::create(no_prefix.data).value().add_space_prefix());
  CHECK_FALSE(Vocab::create(no_prefix.data).value().add_bos());
  const Vocab bpe = Vocab::create(byte_level("qwen2").data).value();
  CHECK(bpe.unk() == -1);
  CHECK_FALSE(bpe.add_bos());
  CHECK(Vocab::create(byte_level("llama-bpe").data).value().add_bos());
}

TEST_CASE("Tokens give the bytes that they add to a text") {
  SmallVocab bpe = byte_level("gpt-2");
  const TokenId control = bpe.control("<|\u00e9|>");
  const TokenId strange = bpe.add("\u4e2d");  // outside the byte alphabet: taken as it is
  const Vocab b = Vocab::create(bpe.data).value();
  for (TokenId id = 0; id < 256; ++id) {
    REQUIRE(b.token_bytes(id).size() == 1);
    CHECK(static_cast<unsigned char>(b.token_bytes(id)[0]) == id);
  }
  CHECK(b.token_bytes(control) == "<|\u00e9|>");
  CHECK(b.token_bytes(strange) == "\u4e2d");
  CHECK(b.token_bytes(-1).empty());
  CHECK(b.token_bytes(b.size()).empty());
  CHECK_FALSE(b.is_special(b.size()));
  CHECK(b.is_special(control));
  CHECK(b.find_special("<|\u00e9|>") == control);
  CHECK(b.find_special("a") == -1);

  SmallVocab spm = sentence_piece(true);
  const TokenId word = spm.add("\u2581a\u2581");
  const Vocab s = Vocab::create(spm.data).value();
  CHECK(s.token_bytes(word) == " a ");
  CHECK(s.token_bytes(3 + 0xE2) == "\xE2");
  CHECK(s.is_special(s.unk()));
}

TEST_CASE("Of user-defined tokens, blanks and HTML are text, other things in brackets are markup") {
  SmallVocab vocab = byte_level("gpt-2");
  for (const char* text : {"  ", "\n\n", "<h1>", "</td>", "<s>", "|||IP|||", "<>", "[a"}) vocab.user_defined(text);
  for (const char* text :
       {"<think>", "</tool_call>", "<|fim_prefix|>", "<start_of_image>", "[multimodal]", "<\uff5cUser\uff5c>"})
    vocab.user_defined(text);
  const TokenId control = vocab.control("<b>");
  const Vocab v = Vocab::create(vocab.data).value();
  for (TokenId id = 256; id < 264; ++id) CHECK_MESSAGE(v.matches_in_user_text(id), v.token_bytes(id));
  for (TokenId id = 264; id < v.size(); ++id) CHECK_MESSAGE(!v.matches_in_user_text(id), v.token_bytes(id));
  CHECK_FALSE(v.matches_in_user_text(control));
}

}  // namespace
}  // namespace heddle::text
