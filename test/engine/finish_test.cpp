// What ends a sequence, in which order of precedence, and what text and reason its client sees.
#include "engine/finish.h"

#include "byte_tokenizer.h"
#include "engine_fixture.h"

namespace heddle::engine {
namespace {

TEST_CASE("check_token: primary eos, then other end tokens with their id, then length") {
  const std::vector<TokenId> ends = {2, 3}, stops = {7, 2};
  EndRules rules{2, ends, stops, false};
  CHECK(check_token(rules, 2, 10, 10)->reason == FinishReason::stop);
  CHECK(check_token(rules, 2, 10, 10)->stop_token == -1);
  CHECK(check_token(rules, 3, 10, 10)->stop_token == 3);
  CHECK(check_token(rules, 7, 10, 10)->stop_token == 7);
  CHECK(check_token(rules, 5, 10, 10)->reason == FinishReason::length);
  CHECK_FALSE(check_token(rules, 5, 9, 10));
  rules.ignore_eos = true;
  CHECK(check_token(rules, 2, 5, 10)->stop_token == 2);  // the request names it itself
  CHECK_FALSE(check_token(rules, 3, 5, 10));
}

// A model that says `script`, then <eos> for ever.
struct Speech {
  EngineBench bench;
  std::vector<TokenId> script;
  Request request = make_request("a", bytes("hi"), 40);

  explicit Speech(std::vector<TokenId> tokens, uint32_t depth = 2) : bench(depth), script(std::move(tokens)) {
    bench.tokenizer = byte_tokenizer();
    bench.stub.vocab_size = kVocab;
    request.sampling.end_tokens = {kEos, kEot};
  }
  explicit Speech(std::string_view text) : Speech(bytes(text)) {}

  std::shared_ptr<Recorder> hear() {
    bench.stub.next = [this](std::span<const TokenId> prefix, uint64_t) {
      const size_t i = prefix.size() - 2;
      return i < script.size() ? script[i] : kEos;
    };
    auto sink = bench.submit(request);
    bench.finish();
    return sink;
  }
};

TEST_CASE("text is what the tokens say; the end token gives none, but counts") {
  Speech speech("hello, world");
  const auto sink = speech.hear();
  CHECK(sink->only().text == "hello, world");
  CHECK(sink->reason() == FinishReason::stop);
  CHECK(sink->only().finish->stop_token == -1);
  CHECK(sink->usage.n_generated == 13);
  CHECK(sink->usage.n_prompt == 2);
  CHECK(sink->only().tokens.back() == kEos);
}

TEST_CASE("another end token is reported by its id") {
  Speech speech({'a', 'b', kEot});
  const auto sink = speech.hear();
  CHECK(sink->only().text == "ab");
  CHECK(sink->only().finish->stop_token == kEot);
}

TEST_CASE("a stop token of the request hides its text, unless stop strings are to be included") {
  for (const bool include : {false, true}) {
    Speech speech("abc!");
    speech.request.stop.token_ids = {'!'};
    speech.request.stop.include_stop_string = include;
    const auto sink = speech.hear();
    CHECK(sink->only().text == (include ? "abc!" : "abc"));
    CHECK(sink->only().finish->stop_token == '!');
    CHECK(sink->only().tokens == bytes("abc!"));
  }
}

TEST_CASE("ignore_eos drops the whole end set, and the answer runs to its length") {
  Speech speech({'a', kEos, kEot, 'b'});
  speech.request.stop.ignore_eos = true;
  speech.request.max_tokens = 4;
  const auto sink = speech.hear();
  CHECK(sink->only().text == "ab");
  CHECK(sink->reason() == FinishReason::length);
  CHECK(sink->usage.n_generated == 4);
}

TEST_CASE("min_tokens keeps end tokens from being sampled until enough were generated") {
  Speech speech({'a', 'b'});
  speech.request.sampling.min_tokens = 5;
  const auto sink = speech.hear();
  CHECK(sink->usage.n_generated == 6);
  CHECK(sink->reason() == FinishReason::stop);
}

TEST_CASE("a stop string ends the answer at once and is cut out, even across tokens and after text was held back") {
  Speech speech("one EN two END three");
  speech.request.stop.strings = {"END"};
  const auto sink = speech.hear();
  CHECK(sink->only().text == "one EN two ");
  CHECK(sink->reason() == FinishReason::stop);
  CHECK(sink->only().finish->stop_string == "END");
  CHECK(sink->usage.n_generated == 14);
  CHECK(speech.bench.engine->snapshot().discarded_tokens == 1);  // depth 2
}

TEST_CASE("a stop string is kept when it is to be included") {
  Speech speech("one END three");
  speech.request.stop.strings = {"END"};
  speech.request.stop.include_stop_string = true;
  CHECK(speech.hear()->only().text == "one END");
}

TEST_CASE("a stop string in the last token allowed wins over length") {
  Speech speech("abEND");
  speech.request.stop.strings = {"END"};
  speech.request.max_tokens = 5;
  const auto sink = speech.hear();
  CHECK(sink->only().text == "ab");
  CHECK(sink->reason() == FinishReason::stop);
}

TEST_CASE("text held back for a stop string comes out when the answer ends without it") {
  for (const uint32_t max_tokens : {4u, 40u}) {
    Speech speech("abEN");
    speech.request.stop.strings = {"END"};
    speech.request.max_tokens = max_tokens;
    CHECK(speech.hear()->only().text == "abEN");
  }
}

TEST_CASE("stop strings are looked for only after min_tokens") {
  Speech speech("ENDabEND");
  speech.request.stop.strings = {"END"};
  speech.request.sampling.min_tokens = 4;
  const auto sink = speech.hear();
  CHECK(sink->only().text == "ENDab");
  CHECK(sink->only().finish->stop_string == "END");
}

TEST_CASE("every delta is whole UTF-8, and a character cut off by the end is shown as U+FFFD") {
  Speech speech(
      "a\xE2\x82\xAC"
      "b\xF0\x9F");
  const auto sink = speech.hear();
  CHECK(sink->only().text ==
        "a\xE2\x82\xAC"
        "b\xEF\xBF\xBD");
}

TEST_CASE("a NaN row ends its sequence with an error, and no other") {
  EngineBench bench(2);
  bench.stub.next = [](std::span<const TokenId> prefix, uint64_t) -> TokenId {
    return prefix.front() == 1 && prefix.size() == 6 ? -1 : 9;
  };
  const auto bad = bench.submit(make_request("bad", iota_prompt(4), 10));
  const auto good = bench.submit(make_request("good", iota_prompt(4, 100), 10));
  bench.finish();
  CHECK(bad->reason() == FinishReason::error);
  CHECK(bad->only().finish->message.find("NaN") != std::string::npos);
  CHECK(bad->only().tokens.size() == 2);
  CHECK(good->reason() == FinishReason::length);
  CHECK(good->only().tokens.size() == 10);
  CHECK(bench.engine->snapshot().finished_error == 1);
  CHECK(bench.engine->healthy());
}

TEST_CASE("growth past the pool ends with length, and a prompt that can never fit is refused with both numbers") {
  EngineBench bench(2, 3, 4);
  const auto grown = bench.submit(make_request("grown", iota_prompt(8), 10));
  const auto full = bench.submit(make_request("full", iota_prompt(12, 50), 10));
  const Refusal refusal = bench.refusal_of(make_request("big", iota_prompt(13), 10));
  CHECK(refusal.kind == Refusal::Kind::never_fits);
  CHECK(refusal.message ==
        "the prompt of 13 tokens needs 4 blocks, 3 exist (room for 16 tokens is needed, for 12 available)");
  CHECK(refusal.blocks_needed == 4);
  CHECK(refusal.blocks_available == 3);
  std::vector<std::shared_ptr<Recorder>> small;
  for (int i = 0; i < 10; ++i) small.push_back(bench.submit(make_request(fmt::format("s{}", i), iota_prompt(3, i), 3)));
  bench.finish();
  CHECK(grown->reason() == FinishReason::length);
  CHECK(grown->only().tokens == bench.expected(iota_prompt(8), 5));
  CHECK(full->reason() == FinishReason::length);
  CHECK(full->only().tokens == bench.expected(iota_prompt(12, 50), 1));
  for (int i = 0; i < 10; ++i)
    CHECK(small[static_cast<size_t>(i)]->only().tokens == bench.expected(iota_prompt(3, i), 3));
}

}  // namespace
}  // namespace heddle::engine
