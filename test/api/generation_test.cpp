#include "api/generation.h"

#include <doctest/doctest.h>

#include <boost/json/parse.hpp>

#include "api/fake_sink.h"

using namespace heddle;
using namespace heddle::api;
namespace json = boost::json;

namespace {

struct Fixture {
  std::shared_ptr<test::FakeSink> sink = std::make_shared<test::FakeSink>();
  std::shared_ptr<Generation> generation;
  std::vector<std::shared_ptr<engine::OutputSink>> prompts;
  int aborts = 0;

  explicit Fixture(GenerationOptions options) {
    options.id = "id-1";
    options.model = "m";
    options.fingerprint = "f";
    const uint32_t n_prompts = options.n_prompts;
    generation = std::make_shared<Generation>(std::move(options), sink);
    for (uint32_t i = 0; i < n_prompts; ++i) prompts.push_back(generation->prompt_sink(i, 5));
    generation->begin([this] { ++aborts; });
  }
  void text(std::string_view piece, uint32_t index = 0, uint32_t prompt = 0) {
    const TokenId token = 3;
    prompts[prompt]->on_delta({index, piece, {&token, 1}, nullptr});
  }
  void finish(engine::Finish finish, uint32_t index = 0, uint32_t prompt = 0) {
    prompts[prompt]->on_delta({index, "", {}, &finish});
  }
  void end(uint32_t n_generated, uint32_t prompt = 0, engine::Times times = {}, uint32_t n_preemptions = 0) {
    prompts[prompt]->on_end({5, 0, n_generated, n_preemptions}, times);
  }
  json::value event(size_t i) const {
    const std::string& event = sink->events.at(i);
    REQUIRE(event.starts_with("data: "));
    REQUIRE(event.ends_with("\n\n"));
    return json::parse(std::string_view(event).substr(6, event.size() - 8));
  }
};

}  // namespace

TEST_CASE("a chat stream is role, text, finish, DONE") {
  Fixture f({.stream = true});
  CHECK(f.sink->stream_status == 200);
  CHECK(f.sink->events.empty());
  f.text("Pa");
  f.text("ris");
  f.finish({.reason = engine::FinishReason::stop});
  f.end(2);
  REQUIRE(f.sink->events.size() == 5);
  CHECK(f.event(0).at("choices").at(0).at("delta") == json::parse(R"({"role":"assistant","content":""})"));
  CHECK(f.event(1).at("choices").at(0).at("delta").at("content") == "Pa");
  CHECK(f.event(1).at("choices").at(0).at("finish_reason").is_null());
  CHECK(f.event(2).at("choices").at(0).at("delta").at("content") == "ris");
  CHECK(f.event(3).at("choices").at(0).at("finish_reason") == "stop");
  CHECK(f.event(3).at("choices").at(0).at("stop_reason").is_null());
  CHECK(f.event(3).at("object") == "chat.completion.chunk");
  CHECK(f.sink->events[4] == "data: [DONE]\n\n");
  CHECK(f.sink->ended);
  for (const std::string& event : f.sink->events) CHECK(event.find("\"usage\":{") == std::string::npos);
}

TEST_CASE("usage comes as one last chunk without choices, only when asked for") {
  Fixture f({.stream = true, .include_usage = true});
  f.text("a");
  f.finish({.reason = engine::FinishReason::length});
  f.end(1);
  REQUIRE(f.sink->events.size() == 5);
  for (size_t i = 0; i < 3; ++i) CHECK(f.event(i).at("usage").is_null());
  CHECK(f.event(3).at("choices").as_array().empty());
  CHECK(f.event(3).at("usage").at("prompt_tokens") == 5);
  CHECK(f.event(3).at("usage").at("completion_tokens") == 1);
  CHECK(f.event(3).at("usage").at("total_tokens") == 6);
}

TEST_CASE("continuous usage counts up") {
  Fixture f({.dialect = Dialect::completion, .stream = true, .include_usage = true, .continuous_usage = true});
  f.text("a");
  f.text("b");
  CHECK(f.event(0).at("usage").at("completion_tokens") == 1);
  CHECK(f.event(1).at("usage").at("completion_tokens") == 2);
}

TEST_CASE("every choice of a stream has one role and one finish reason") {
  Fixture f({.stream = true, .n = 2, .n_prompts = 2});
  for (uint32_t prompt = 0; prompt < 2; ++prompt) {
    for (uint32_t index = 0; index < 2; ++index) f.text("x", index, prompt);
  }
  for (uint32_t prompt = 0; prompt < 2; ++prompt) {
    for (uint32_t index = 0; index < 2; ++index) f.finish({.reason = engine::FinishReason::stop}, index, prompt);
    f.end(2, prompt);
  }
  int roles[4] = {};
  int finishes[4] = {};
  for (size_t i = 0; i + 1 < f.sink->events.size(); ++i) {
    const json::value event = f.event(i);
    const auto index = static_cast<size_t>(event.at("choices").at(0).at("index").as_int64());
    if (event.at("choices").at(0).at("delta").as_object().contains("role")) ++roles[index];
    if (!event.at("choices").at(0).at("finish_reason").is_null()) ++finishes[index];
  }
  for (int i = 0; i < 4; ++i) {
    CHECK(roles[i] == 1);
    CHECK(finishes[i] == 1);
  }
}

TEST_CASE("a whole reply holds the same text as the stream") {
  Fixture f({.n = 2});
  f.text("one", 0);
  f.text("two", 1);
  f.text(" more", 0);
  f.finish({.reason = engine::FinishReason::stop, .stop_string = "END"}, 0);
  f.finish({.reason = engine::FinishReason::stop, .stop_token = 7}, 1);
  f.end(3);
  REQUIRE(f.sink->replies.size() == 1);
  const json::value body = json::parse(f.sink->replies[0].body);
  CHECK(f.sink->replies[0].status == 200);
  CHECK(body.at("object") == "chat.completion");
  CHECK(body.at("choices").at(0).at("message").at("content") == "one more");
  CHECK(body.at("choices").at(0).at("stop_reason") == "END");
  CHECK(body.at("choices").at(1).at("message").at("content") == "two");
  CHECK(body.at("choices").at(1).at("stop_reason") == 7);
  CHECK(body.at("usage").at("completion_tokens") == 3);
  CHECK(body.at("usage").at("prompt_tokens_details").is_null());
  CHECK_FALSE(body.as_object().contains("warnings"));
}

TEST_CASE("warnings stand in the reply, and in the first chunk of a stream only") {
  Fixture whole({.dialect = Dialect::completion, .warnings = {"w"}});
  whole.finish({});
  whole.end(0);
  CHECK(json::parse(whole.sink->replies.at(0).body).at("warnings") == json::array{"w"});
  for (Dialect dialect : {Dialect::chat, Dialect::completion}) {
    Fixture stream({.dialect = dialect, .stream = true, .warnings = {"w"}});
    stream.text("a");
    stream.text("b");
    CHECK(stream.event(0).at("warnings") == json::array{"w"});
    for (size_t i = 1; i < stream.sink->events.size(); ++i)
      CHECK_FALSE(stream.event(i).as_object().contains("warnings"));
  }
}

TEST_CASE("an engine fault is a 500, or an error event and DONE in a stream") {
  Fixture whole({});
  whole.finish({.reason = engine::FinishReason::error, .message = "NaN in logits"});
  whole.end(0);
  CHECK(whole.sink->replies.at(0).status == 500);
  Fixture stream({.stream = true});
  stream.text("a");
  stream.finish({.reason = engine::FinishReason::error, .message = "NaN in logits"});
  stream.end(1);
  REQUIRE(stream.sink->events.size() == 4);
  CHECK(stream.event(2).at("error").at("message") == "NaN in logits");
  CHECK(stream.sink->events[3] == "data: [DONE]\n\n");
}

TEST_CASE("deltas merge while the client is behind, and nothing is lost") {
  Fixture f({.stream = true});
  f.text("a");
  const size_t before = f.sink->events.size();
  f.sink->flow = Flow::behind;
  f.text("b");
  REQUIRE(f.sink->events.size() == before + 1);
  f.text("c");
  f.text("d");
  CHECK(f.sink->events.size() == before + 1);
  f.sink->flow = Flow::open;
  f.sink->writable();
  REQUIRE(f.sink->events.size() == before + 2);
  CHECK(f.event(before + 1).at("choices").at(0).at("delta").at("content") == "cd");
  f.sink->flow = Flow::behind;
  f.text("e");
  f.text("f");
  f.finish({.reason = engine::FinishReason::length});
  f.end(6);
  const size_t last = f.sink->events.size() - 1;
  CHECK(f.sink->events[last] == "data: [DONE]\n\n");
  CHECK(f.event(last - 1).at("choices").at(0).at("delta").at("content") == "f");
  CHECK(f.event(last - 1).at("choices").at(0).at("finish_reason") == "length");
}

TEST_CASE("a client that went away aborts its requests once and gets nothing more") {
  Fixture f({.stream = true, .n = 2});
  f.text("a");
  const size_t before = f.sink->events.size();
  f.sink->gone(Gone::disconnected);
  CHECK(f.aborts == 1);
  f.text("b");
  f.finish({.reason = engine::FinishReason::abort});
  f.end(1);
  CHECK(f.sink->events.size() == before);
  CHECK_FALSE(f.sink->ended);
}

TEST_CASE("a missed deadline is 503 before the first plan and 504 after it, with a code for programs") {
  const engine::Finish late{
      .reason = engine::FinishReason::abort, .message = "waited 40 ms of 40 ms", .deadline_exceeded = true};
  Fixture queued({});
  queued.finish(late);
  queued.end(0);
  CHECK(queued.sink->replies.at(0).status == 503);
  const json::value body = json::parse(queued.sink->replies.at(0).body);
  CHECK(body.at("error").at("code") == "deadline_exceeded");
  CHECK(body.at("error").at("message") == "waited 40 ms of 40 ms");
  CHECK(queued.sink->notes.find("finish=abort") != std::string::npos);
  Fixture running({});
  running.text("partial");
  running.finish(late);
  running.end(1, 0, {.scheduled = MonotonicTime{} + std::chrono::seconds(1)});
  CHECK(running.sink->replies.at(0).status == 504);
  CHECK(running.sink->replies.at(0).body.find("partial") == std::string::npos);
}

TEST_CASE("a missed deadline in a stream is an error event and DONE, without a finish reason or usage") {
  Fixture f({.stream = true, .include_usage = true});
  f.text("a");
  f.finish({.reason = engine::FinishReason::abort, .message = "late", .deadline_exceeded = true});
  f.end(1, 0, {.scheduled = MonotonicTime{} + std::chrono::seconds(1)});
  REQUIRE(f.sink->events.size() == 4);
  CHECK(f.event(2).at("error").at("code") == "deadline_exceeded");
  CHECK(f.event(2).at("error").at("type") == "TimeoutError");
  CHECK(f.sink->events[3] == "data: [DONE]\n\n");
  for (const std::string& event : f.sink->events) CHECK(event.find("\"abort\"") == std::string::npos);
}

TEST_CASE("the end record counts tokens and preemptions over all prompts") {
  Fixture f({.n_prompts = 2});
  f.finish({}, 0, 0);
  f.finish({}, 0, 1);
  f.end(3, 0, {}, 1);
  f.end(4, 1, {}, 2);
  CHECK(f.sink->notes == "prompt=10 cached=0 generated=7 finish=stop,stop preemptions=3");
}

TEST_CASE("a registration is held until the last prompt has ended") {
  Fixture f({.n_prompts = 2});
  const auto registration = std::make_shared<int>(0);
  f.generation->keep(registration);
  f.generation.reset();
  f.finish({}, 0, 0);
  f.end(1, 0);
  CHECK(registration.use_count() == 2);
  f.finish({}, 0, 1);
  f.end(1, 1);
  CHECK(registration.use_count() == 1);
}
