#include "text/tokenizer.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <chrono>
#include <random>
#include <string>
#include <thread>

#include "small_vocab.h"
#include "text/detokenizer.h"

namespace heddle::text {

using Ids = std::vector<TokenId>;

namespace {

std::string repeated(std::string_view unit, size_t n) {
  std::string out;
  for (size_t i = 0; i < n; ++i) out += unit;
  return out;
}

uint64_t steps(const Tokenizer& tokenizer, const std::string& text) {
  EncodeCounters counters;
  tokenizer.encode(text, false, {}, &counters);
  return counters.merge_steps;
}

// The definition: look at all adjacent pairs, merge the one that stands first in the list, leftmost; repeat.
Ids merge_by_definition(std::string_view word, const std::vector<std::pair<std::string, std::string>>& merges,
                        const Tokenizer& tokenizer) {
  std::vector<std::string> parts;
  for (const char c : word) parts.emplace_back(1, c);
  for (;;) {
    size_t best_rank = merges.size(), best = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i)
      for (size_t rank = 0; rank < best_rank; ++rank)
        if (merges[rank].first == parts[i] && merges[rank].second == parts[i + 1]) best_rank = rank, best = i;
    if (best_rank == merges.size()) break;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + static_cast<ptrdiff_t>(best) + 1);
  }
  Ids ids;
  for (const std::string& part : parts)
    for (TokenId id = 0; id < tokenizer.vocab_size(); ++id)
      if (tokenizer.token_bytes(id) == part) {
        ids.push_back(id);
        break;
      }
  return ids;
}

}  // namespace

TEST_CASE("The pair that stands first in the merge list is merged first, and the leftmost of equal ones") {
  SmallVocab vocab = byte_level("gpt-2");
  const TokenId bc = vocab.merge("b", "c");
  const TokenId ab = vocab.merge("a", "b");
  const TokenId aa = vocab.merge("a", "a");
  const auto tokenizer = vocab.build();
  CHECK(tokenizer->encode("abc", false) == Ids{'a', bc});
  CHECK(tokenizer->encode("abb", false) == Ids{ab, 'b'});
  CHECK(tokenizer->encode("aaa", false) == Ids{aa, 'a'});
  CHECK(tokenizer->encode("aaab", false) == Ids{aa, ab});
  CHECK(tokenizer->encode("", false).empty());
}

TEST_CASE("Only Llama 3 takes a piece that is a token whole, whatever the merges say") {
  for (const bool llama : {false, true}) {
    SmallVocab vocab = byte_level(llama ? "llama-bpe" : "qwen2");
    vocab.merge("a", "b");
    const TokenId whole = vocab.add("abc");
    CHECK(vocab.build()->encode("abc", false) == (llama ? Ids{whole} : Ids{256, 'c'}));
    CHECK(vocab.build()->encode("abcd", false) == Ids{256, 'c', 'd'});
  }
}

TEST_CASE("Short and long words are merged as the definition says") {
  std::vector<std::pair<std::string, std::string>> merges;
  SmallVocab vocab = byte_level("gpt-2");
  const auto add = [&](const char* left, const char* right) {
    merges.emplace_back(left, right);
    vocab.merge(left, right);
  };
  // Not in the order in which training would give them: later parts stand before what they are made of.
  add("a", "b"), add("ab", "ab"), add("b", "a"), add("c", "c"), add("cc", "c"), add("abab", "c"), add("ba", "ba");
  add("a", "a"), add("aa", "b"), add("c", "a"), add("ccc", "ca"), add("b", "b");
  const auto tokenizer = vocab.build();
  const uint32_t seed = std::random_device()();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (int i = 0; i < 3000; ++i) {
    std::string word;
    const size_t n = 1 + random() % (i % 10 == 0 ? 200 : 30);
    for (size_t k = 0; k < n; ++k) word += static_cast<char>('a' + random() % 3);
    REQUIRE_MESSAGE(tokenizer->encode(word, false) == merge_by_definition(word, merges, *tokenizer), word);
  }
}

TEST_CASE("A byte-level tokenizer that is wrong is refused in one line that names the key") {
  SmallVocab vocab = byte_level("gpt-2");
  CHECK(vocab.error() == "tokenizer.ggml.merges is missing or empty");
  vocab.data.merges = {"a"};
  CHECK(vocab.error() == "tokenizer.ggml.merges[0] is not two tokens with a blank between");
  vocab.data.merges = {"a "};
  CHECK(vocab.error() == "tokenizer.ggml.merges[0] is not two tokens with a blank between");
  vocab.data.merges = {"a b"};
  CHECK(vocab.error() == "tokenizer.ggml.merges[0]: 'a b' needs a token that tokenizer.ggml.tokens lacks");
  vocab.data.pre = "qwen35";
  CHECK(vocab.error() == "tokenizer.ggml.pre: 'qwen35' is not supported (known: gpt-2, smollm, llama-bpe, qwen2)");
  vocab.data.pre = "";
  CHECK(vocab.error() ==
        "tokenizer.ggml.pre is missing: the pre-tokenizer is not guessed (known: gpt-2, smollm, llama-bpe, qwen2)");
}

TEST_CASE("Long runs take work in proportion to their length (T41)") {
  SmallVocab bpe = byte_level("llama-bpe");
  SmallVocab spm = sentence_piece(true);
  for (const char* unit : {"A", " ", "\n", ".", "1", "漢", "🫠", "\u0301", "us"}) {
    const std::string u = unit;
    // Merges that double: A A, AA AA, ... as real vocabularies have them for such runs.
    for (size_t i = 1; i < u.size(); ++i) bpe.merge(u.substr(0, i), u.substr(i, 1));
    for (size_t n = 1; n < 64; n *= 2) bpe.merge(repeated(u, n), repeated(u, n));
    for (size_t n = 1; n <= 64; n *= 2)
      spm.add(u == " " ? repeated("\u2581", n) : repeated(u, n), TokenType::normal, -static_cast<float>(n));
  }
  const auto a = bpe.build(), b = spm.build();
  std::mt19937 random(7);
  std::string base64;
  for (int i = 0; i < 100'000; ++i)
    base64 += "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"[random() % 64];
  for (const Tokenizer* tokenizer : {a.get(), b.get()}) {
    for (const char* unit : {"A", " ", "\n", ".", "1", "漢", "🫠", "\u0301", "us", "<", "\u2581", "\0"}) {
      const std::string u = *unit == 0 ? std::string(1, '\0') : unit;
      for (const size_t n : {1000, 10'000})
        CHECK_MESSAGE(steps(*tokenizer, repeated(u, 10 * n)) <= 12 * steps(*tokenizer, repeated(u, n)) + 1000, u);
    }
    for (const size_t n : {1000, 10'000})
      CHECK(steps(*tokenizer, base64.substr(0, 10 * n)) <= 12 * steps(*tokenizer, base64.substr(0, n)) + 1000);
    CHECK(tokenizer->encode(repeated("A", 64), false).size() <= 2);  // the runs do merge
  }
}

TEST_CASE("A control token is recognised only where the template wrote all of it (T44)") {
  SmallVocab vocab = byte_level("gpt-2");
  vocab.merge("a", "b");
  const TokenId end = vocab.control("<|end|>");
  const TokenId longer = vocab.control("<|end|>>");
  const auto tokenizer = vocab.build();
  const auto plain = [&](std::string_view text) { return tokenizer->encode(text, false); };
  const auto joined = [](Ids a, const Ids& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  };
  CHECK(plain("x<|end|>y").size() == 9);
  CHECK(tokenizer->encode("x<|end|>y", true) == Ids{'x', end, 'y'});
  CHECK(tokenizer->encode("<|end|>>", true) == Ids{longer});
  CHECK(tokenizer->encode("<|end|><|end", true) == joined({end}, plain("<|end")));

  const auto encode = [&](std::vector<EncodeSpan> spans) { return tokenizer->encode(spans); };
  CHECK(encode({{"<|end|>", true}, {"<|end|>", false}, {"<|end|>", true}}) ==
        joined(joined({end}, plain("<|end|>")), {end}));
  // Across a border, either way round, it is plain text; pieces of the template join.
  CHECK(encode({{"<|en", true}, {"d|>", false}}) == plain("<|end|>"));
  CHECK(encode({{"<|en", false}, {"d|>", true}}) == plain("<|end|>"));
  CHECK(encode({{"<|en", true}, {"d|>", true}}) == Ids{end});
  CHECK(encode({{"<|en", true}, {"", false}, {"d|>", true}}) == Ids{end});
  // The longest token that the template wrote whole, though the text goes on like a longer one.
  CHECK(encode({{"<|end|>", true}, {">", false}}) == Ids{end, '>'});
}

TEST_CASE("Text of the template and of the user beside each other is one text for merges") {
  SmallVocab vocab = byte_level("gpt-2");
  const TokenId ab = vocab.merge("a", "b");
  const TokenId space_ab = vocab.merge(" ", "ab");
  const auto tokenizer = vocab.build();
  // Pieces that lie apart in memory, and pieces that do not.
  const std::string text = "a ab";
  CHECK(tokenizer->encode(std::vector<EncodeSpan>{{"a", true}, {"b a", false}, {"b", true}}) == Ids{ab, space_ab});
  const std::string_view view = text;
  CHECK(tokenizer->encode(std::vector<EncodeSpan>{{view.substr(0, 3), true}, {view.substr(3), false}}) ==
        Ids{'a', space_ab});
  CHECK(tokenizer->encode(std::vector<EncodeSpan>{}).empty());
}

TEST_CASE("User-defined tokens are found in any text if they are text, and only in the template's if they are markup") {
  SmallVocab vocab = byte_level("gpt-2");
  vocab.merge("a", "b");
  const TokenId think = vocab.user_defined("<think>");
  const TokenId blanks = vocab.user_defined("    ");
  const TokenId more = vocab.user_defined("        ");
  const auto tokenizer = vocab.build();
  CHECK(tokenizer->encode("x<think>", true) == Ids{'x', think});
  CHECK(tokenizer->encode("x<think>", false).size() == 8);
  CHECK(tokenizer->encode("a    b", false) == Ids{'a', blanks, 'b'});
  CHECK(tokenizer->encode("a             b", false) == Ids{'a', more, blanks, ' ', 'b'});
}

TEST_CASE("Bos and eos are added when asked for, and only if the model has them") {
  SmallVocab vocab = byte_level("gpt-2");
  vocab.merge("a", "b");
  CHECK(vocab.build()->encode("a", false, {.add_bos = true, .add_eos = true}) == Ids{'a'});
  const TokenId bos = vocab.control("<bos>"), eos = vocab.control("<eos>");
  vocab.data.bos_id = bos;
  vocab.data.eos_id = eos;
  CHECK(vocab.build()->encode("a", false, {.add_bos = true, .add_eos = true}) == Ids{bos, 'a', eos});
  CHECK(vocab.build()->encode("", false, {.add_bos = true}) == Ids{bos});
  CHECK(vocab.build()->encode("a", false) == Ids{'a'});
}

TEST_CASE("Bytes that are no UTF-8 are read as U+FFFD, in each span by itself") {
  SmallVocab vocab = byte_level("gpt-2");
  vocab.merge("a", "b");
  const TokenId end = vocab.control("<|end|>");
  const auto tokenizer = vocab.build();
  CHECK(tokenizer->encode("a\xE2\x82z", false) == tokenizer->encode("a\uFFFDz", false));
  CHECK(tokenizer->encode(
            std::vector<EncodeSpan>{{"\xFF", false}, {"<|end|>", true}, {"\xE2\x82", false}, {"\xAC", false}}) ==
        Ids{0xEF, 0xBF, 0xBD, end, 0xEF, 0xBF, 0xBD, 0xEF, 0xBF, 0xBD});
}

TEST_CASE("SentencePiece merges by score, leftmost first, and spells what it does not know in bytes") {
  SmallVocab vocab = sentence_piece(false);
  const TokenId a = vocab.add("a", TokenType::normal, -10), b = vocab.add("b", TokenType::normal, -11);
  const TokenId ab = vocab.add("ab", TokenType::normal, -2), ba = vocab.add("ba", TokenType::normal, -1);
  const TokenId aa = vocab.add("aa", TokenType::normal, -3);
  const TokenId space_a = vocab.add("\u2581a", TokenType::normal, -0.0F),
                space = vocab.add("\u2581", TokenType::normal, -12);
  const auto tokenizer = vocab.build();
  CHECK(tokenizer->encode("abab", false) == Ids{a, ba, b});
  CHECK(tokenizer->encode("aaa", false) == Ids{aa, a});
  CHECK(tokenizer->encode("ab a", false) == Ids{ab, space_a});
  CHECK(tokenizer->encode("\u2581a  ", false) == Ids{space_a, space, space});
  CHECK(tokenizer->encode("aé", false) == Ids{a, 3 + 0xC3, 3 + 0xA9});
}

TEST_CASE("Without byte tokens, a run of unknown characters is one unknown token, also in words seen before") {
  SmallVocab vocab;
  vocab.data.model = "llama";
  vocab.data.add_space_prefix = false;
  vocab.add("<unk>", TokenType::unknown);
  const TokenId a = vocab.add("a"), space = vocab.add("\u2581");
  const auto tokenizer = vocab.build();
  for (int i = 0; i < 2; ++i) {
    CHECK(tokenizer->encode("axyaz", false) == Ids{a, 0, a, 0});
    CHECK(tokenizer->encode("z z", false) == Ids{0, space, 0});
    CHECK(tokenizer->encode("zz", false) == Ids{0});
  }
}

TEST_CASE("The blank that SentencePiece models expect in front stands at the start of a text only (T11)") {
  SmallVocab vocab = sentence_piece(true);
  const TokenId a = vocab.add("a"), space = vocab.add("\u2581"), space_a = vocab.add("\u2581a", TokenType::normal, 1);
  const TokenId inst = vocab.control("[INST]");
  const TokenId blanks = vocab.user_defined("    ");
  const auto tokenizer = vocab.build();
  const TokenId bos = tokenizer->vocab().bos();
  CHECK(tokenizer->encode("a", false) == Ids{space_a});
  CHECK(tokenizer->encode("a", false, {.add_bos = true}) == Ids{bos, space_a});
  CHECK(tokenizer->encode(" a", false) == Ids{space, space_a});
  CHECK(tokenizer->encode("", false).empty());
  CHECK(tokenizer->encode("[INST]a", true) == Ids{inst, a});
  CHECK(tokenizer->encode("[INST] a", true) == Ids{inst, space_a});
  CHECK(tokenizer->encode("a[INST]a", true) == Ids{space_a, inst, a});
  CHECK(tokenizer->encode("   a", false) == Ids{blanks, a});
  CHECK(tokenizer->encode(std::vector<EncodeSpan>{{"[INST]", false}, {"a", true}}).front() == space);
}

TEST_CASE("What a user writes cannot become a user-defined markup token by merges") {
  SmallVocab vocab = sentence_piece(false);
  for (const char* piece : {"<", "x", ">", "<x"}) vocab.add(piece);
  const TokenId markup = vocab.user_defined("<xx>");
  vocab.add("<xx", TokenType::normal, 1);
  const auto tokenizer = vocab.build();
  CHECK(tokenizer->encode("<xx>", true) == Ids{markup});
  for (const TokenId id : tokenizer->encode("<xx>", false)) CHECK(id != markup);
}

TEST_CASE("Tokenizers may be used by several threads at once, and one thread may use several") {
  SmallVocab bpe = byte_level("qwen2");
  bpe.merge("a", "b"), bpe.merge("ab", "ab");
  SmallVocab spm = sentence_piece(true);
  for (const char* piece : {"a", "b", "\u2581", "ab", "\u2581ab"})
    spm.add(piece, TokenType::normal, static_cast<float>(piece[0]));
  const auto first = bpe.build(), second = spm.build();
  const std::string text = repeated("abab ab e\u0301 12\n", 200);
  const Ids want_first = first->encode(text, false), want_second = second->encode(text, false);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i)
        if (first->encode(text, false) != want_first || second->encode(text, false) != want_second) ++wrong;
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

}  // namespace heddle::text
