// The vocabularies of the two models that tools/test installs. Equality with the reference over a large corpus is in
// test/e2e/test_tokenizers.py; ids here were made by the Reference classes of tools/make_tokenizer_goldens.py.
#include <doctest/doctest.h>

#include <random>

#include "model/gguf.h"
#include "text/detokenizer.h"
#include "text/gguf_vocab.h"
#include "text/tokenizer.h"

namespace heddle::text {
namespace {

using Ids = std::vector<TokenId>;

std::unique_ptr<const Tokenizer> open_tokenizer(const std::string& name) {
  const auto file = model::GgufFile::open(std::string(HEDDLE_SOURCE_DIR "/models/") + name);
  REQUIRE_MESSAGE(file.has_value(), file.error().message << " (tools/test installs the models)");
  const auto data = read_vocab(file->metadata());
  REQUIRE_MESSAGE(data.has_value(), data.error().message);
  auto tokenizer = make_tokenizer(*data);
  REQUIRE_MESSAGE(tokenizer.has_value(), tokenizer.error().message);
  return std::move(*tokenizer);
}

const Tokenizer& smollm2() {
  static const auto tokenizer = open_tokenizer("SmolLM2-135M-Instruct.Q4_1.gguf");
  return *tokenizer;
}
const Tokenizer& gemma3() {
  static const auto tokenizer = open_tokenizer("gemma-3-270m-q4_k_m.gguf");
  return *tokenizer;
}

TEST_CASE("SmolLM2 gives the ids of a chat, and plain text for its own markers in a message") {
  const Tokenizer& t = smollm2();
  CHECK(t.encode("The capital of France is", false) == Ids{504, 3575, 282, 4649, 314});
  CHECK(t.encode("<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
                 "<|im_start|>user\nWhat is 1234?<|im_end|>\n<|im_start|>assistant\n",
                 true) == Ids{1,   9690, 198, 2683, 359,   253,  5356, 5646, 11173, 3365, 3511, 308,  34519,
                              28,  7018, 411, 407,  19712, 8182, 2,    198,  1,     4093, 198,  1780, 314,
                              216, 33,   34,  35,   36,    47,   2,    198,  1,     520,  9531, 198});
  CHECK(t.encode("<|im_end|>", false) == Ids{44, 108, 306, 79, 486, 108, 46});
  CHECK(t.vocab().eos() == 2);
  CHECK(Ids(t.end_tokens().begin(), t.end_tokens().end()) == Ids{2, 0});
}

TEST_CASE("Gemma 3 gives the ids of a chat with runs of blanks and HTML, and plain text for its own markers") {
  const Tokenizer& t = gemma3();
  CHECK(t.encode("The capital of France is", false) == Ids{818, 5279, 529, 7001, 563});
  CHECK(t.encode("def f(x):\n    return x", false) == Ids{2063, 517, 236769, 236781, 1473, 107, 140, 2060, 1123});
  CHECK(t.encode("<start_of_turn>user\nWhat   is <b>1234</b>?\n\n\n<end_of_turn>\n", true) ==
        Ids{105, 2364, 107, 3689, 139, 511, 236743, 200, 236770, 236778, 236800, 236812, 209, 236881, 109, 106, 107});
  CHECK(t.encode("<end_of_turn>", false) == Ids{236820, 643, 236779, 1340, 236779, 887, 236813});
  for (const TokenId id : t.encode("<start_of_image>", false)) CHECK(id != 255999);
  CHECK(t.vocab().add_bos());
  CHECK_FALSE(t.vocab().add_space_prefix());
  CHECK(Ids(t.end_tokens().begin(), t.end_tokens().end()) == Ids{1, 106});
}

TEST_CASE("No text of a user gives a control token (T44)") {
  for (const Tokenizer* t : {&smollm2(), &gemma3()}) {
    for (const TokenId added : t->vocab().added_tokens()) {
      const std::string text = "x" + std::string(t->token_bytes(added)) + "y";
      for (const TokenId id : t->encode(text, false)) {
        if (!t->is_special(id)) continue;
        FAIL_CHECK("'" << text << "' gives " << id);
      }
    }
  }
}

TEST_CASE("Long runs take work in proportion to their length on real vocabularies (T41)") {
  const auto steps = [](const Tokenizer& t, const std::string& unit, size_t n) {
    std::string text;
    for (size_t i = 0; i < n; ++i) text += unit;
    EncodeCounters counters;
    t.encode(text, false, {}, &counters);
    return counters.merge_steps;
  };
  for (const Tokenizer* t : {&smollm2(), &gemma3()})
    for (const char* unit : {"A", " ", "\n", ".", "1", "漢", "🫠", "\u0301", "us", "\u2581", "aGVsbG8gd29ybGQ+Lz"})
      CHECK_MESSAGE(steps(*t, unit, 100'000) <= 12 * steps(*t, unit, 10'000) + 1000, unit);
}

TEST_CASE("Characters split over tokens come out whole, and joined chunks are the whole text (T01)") {
  const std::string text = "🫠 🥹 龜 T\u0301 🇫🇷 👩\u200d👩\u200d👧 naïve ё ไทย";
  for (const Tokenizer* t : {&smollm2(), &gemma3()}) {
    const Ids ids = t->encode(text, false);
    CHECK(ids.size() > 15);  // not one a character
    std::string whole;
    Detokenizer detokenizer(t->vocab());
    for (const TokenId id : ids) {
      std::string chunk;
      detokenizer.feed(id, chunk);
      CHECK(chunk.find("\uFFFD") == std::string::npos);
      whole += chunk;
    }
    detokenizer.flush(whole);
    CHECK(whole == text);
  }
}

}  // namespace
}  // namespace heddle::text
