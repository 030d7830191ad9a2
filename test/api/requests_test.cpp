#include <doctest/doctest.h>
#include <fmt/format.h>

#include <boost/json/parse.hpp>

#include "api/chat_request.h"
#include "api/completion_request.h"

using namespace heddle;
using namespace heddle::api;
namespace json = boost::json;

namespace {

const GenerationLimits kLimits{.vocab_size = 100, .max_model_len = 64, .end_tokens = {2, 7}};

HttpRequest post(std::string body) {
  HttpRequest request;
  request.method = "POST";
  request.headers = {{"Content-Type", "application/json; charset=utf-8"}};
  request.body = std::move(body);
  return request;
}

ApiResult<CompletionRequest> completion(std::string_view fields) {
  auto body =
      parse_body(post("{\"prompt\":\"x\"" + std::string(fields.empty() ? "" : ",") + std::string(fields) + "}"));
  if (!body) return tl::unexpected(body.error());
  return read_completion_request(*body, kLimits);
}

ApiResult<ChatRequest> chat(std::string_view messages, std::string_view more = "") {
  auto body = parse_body(post("{\"messages\":" + std::string(messages) + std::string(more) + "}"));
  if (!body) return tl::unexpected(body.error());
  return read_chat_request(*body, kLimits);
}

struct Bad {
  const char* fields;
  const char* param;
};

}  // namespace

TEST_CASE("a bad value is a 400 that names its field") {
  const Bad table[] = {
      {"\"temperature\":3", "temperature"},
      {"\"temperature\":-1", "temperature"},
      {"\"temperature\":\"hot\"", "temperature"},
      {"\"temperature\":NaN", "temperature"},
      {"\"temperature\": -Infinity", "temperature"},
      {"\"temperature\":1e999", "temperature"},
      {"\"temperature\":true", "temperature"},
      {"\"top_p\":0", "top_p"},
      {"\"top_p\":1.1", "top_p"},
      {"\"top_k\":-2", "top_k"},
      {"\"top_k\":1.5", "top_k"},
      {"\"min_p\":1.01", "min_p"},
      {"\"presence_penalty\":2.5", "presence_penalty"},
      {"\"frequency_penalty\":-2.5", "frequency_penalty"},
      {"\"repetition_penalty\":0", "repetition_penalty"},
      {"\"repetition_penalty\":1e400", "repetition_penalty"},
      {"\"n\":0", "n"},
      {"\"n\":-1", "n"},
      {"\"n\":129", "n"},
      {"\"n\":3,\"temperature\":0", "n"},
      {"\"max_tokens\":0", "max_tokens"},
      {"\"max_tokens\":-1", "max_tokens"},
      {"\"max_tokens\":1.5", "max_tokens"},
      {"\"max_tokens\":\"5\"", "max_tokens"},
      {"\"max_tokens\":true", "max_tokens"},
      {"\"max_tokens\":100000000000000000000000", "max_tokens"},
      {"\"min_tokens\":-1", "min_tokens"},
      {"\"seed\":1.5", "seed"},
      {"\"stop\":\"\"", "stop"},
      {"\"stop\":[\"a\",\"\"]", "stop"},
      {"\"stop\":[1]", "stop"},
      {"\"stop\":[\"a\",\"b\",\"c\",\"d\",\"e\"]", "stop"},
      {"\"stop_token_ids\":[100]", "stop_token_ids[0]"},
      {"\"stop_token_ids\":7", "stop_token_ids"},
      {"\"logit_bias\":{\"100\":1}", "logit_bias"},
      {"\"logit_bias\":{\"x\":1}", "logit_bias"},
      {"\"logit_bias\":{\"1\":101}", "logit_bias"},
      {"\"logit_bias\":{\"1\":NaN}", "1"},
      {"\"logit_bias\":[]", "logit_bias"},
      {"\"stream\":1", "stream"},
      {"\"stream_options\":{\"include_usage\":true}", "stream_options"},
      {"\"stream\":true,\"stream_options\":{\"include_usage\":1}", "stream_options.include_usage"},
      {"\"stream\":true,\"stream_options\":[]", "stream_options"},
      {"\"ignore_eos\":0", "ignore_eos"},
      {"\"cache_salt\":\"\"", "cache_salt"},
      {"\"cache_salt\":5", "cache_salt"},
      {"\"cache_salt\":\"a@b\"", "cache_salt"},
      {"\"cache_salt\":\"a/b\"", "cache_salt"},
      {"\"cache_salt\":\"a\\\\b\"", "cache_salt"},
      {"\"cache_salt\":\"a\\u0000b\"", "cache_salt"},
      {"\"user\":5", "user"},
      {"\"model\":5", "model"},
      {"\"echo\":true", "echo"},
      {"\"logprobs\":1", "logprobs"},
      {"\"logprobs\":0", "logprobs"},
      {"\"best_of\":2", "best_of"},
      {"\"suffix\":\"x\"", "suffix"},
      {"\"response_format\":{\"type\":\"json_object\"}", "response_format"},
      {"\"use_beam_search\":true", "use_beam_search"},
      {"\"priority\":1.5", "priority"},
      {"\"priority\":\"high\"", "priority"},
      {"\"priority\":2147483648", "priority"},
      {"\"timeout_ms\":0", "timeout_ms"},
      {"\"timeout_ms\":-5", "timeout_ms"},
      {"\"timeout_ms\":\"5\"", "timeout_ms"},
      {"\"timeout_ms\":0.5", "timeout_ms"},
      {"\"timeout_ms\":2147483648", "timeout_ms"},
      {"\"first_token_timeout_ms\":0", "first_token_timeout_ms"},
      {"\"first_token_timeout_ms\":true", "first_token_timeout_ms"},
  };
  for (const Bad& bad : table) {
    CAPTURE(bad.fields);
    auto request = completion(bad.fields);
    REQUIRE_FALSE(request.has_value());
    CHECK(request.error().status == 400);
    CHECK(request.error().param == bad.param);
    CHECK_FALSE(request.error().message.empty());
  }
}

TEST_CASE("values at the edge of their range, nulls and neutral values of later features are accepted") {
  for (const char* fields : {"",
                             "\"temperature\":0",
                             "\"temperature\":2",
                             "\"temperature\":1e-320",
                             "\"temperature\":-0.0",
                             "\"top_p\":1",
                             "\"top_k\":-1",
                             "\"top_k\":0",
                             "\"top_k\":1000000000",
                             "\"min_p\":0",
                             "\"seed\":-1",
                             "\"seed\":9223372036854775807",
                             "\"max_tokens\":5.0",
                             "\"max_tokens\":1000000000000",
                             "\"stop\":null",
                             "\"stop\":[]",
                             "\"stop\":\"a\"",
                             "\"logprobs\":null",
                             "\"echo\":false",
                             "\"best_of\":1",
                             "\"response_format\":{\"type\":\"text\"}",
                             "\"suffix\":null",
                             "\"n\":128",
                             "\"logit_bias\":{\"99\":-100}",
                             "\"stream\":true,\"stream_options\":{}",
                             "\"stream\":true,\"stream_options\":null",
                             "\"user\":\"u\"",
                             "\"priority\":-2147483648",
                             "\"priority\":0",
                             "\"timeout_ms\":1,\"first_token_timeout_ms\":2147483647",
                             "\"timeout_ms\":null",
                             "\"metadata\":{\"a\":1}"}) {
    CAPTURE(fields);
    auto request = completion(fields);
    if (!request) FAIL_CHECK(request.error().message);
    if (request) CHECK(request->warnings.empty());
  }
}

TEST_CASE("unknown fields are ignored and listed") {
  auto request = completion("\"guided_json\":{},\"foo\":1,\"temperature\":0.5");
  REQUIRE(request.has_value());
  REQUIRE(request->warnings.size() == 2);
  CHECK(request->warnings[0] == "unknown field `guided_json` was ignored");
  CHECK(request->warnings[1] == "unknown field `foo` was ignored");
}

TEST_CASE("a body that is not one JSON object is a 400") {
  std::string deep(100000, '[');
  for (const std::string& body :
       {std::string(), std::string("{:"), std::string("{\"a\":1,}"), std::string("{} {}"), std::string("[]"),
        std::string("5"), std::string("\xEF\xBB\xBF{}"), std::string("{\"a\":\"\\ud800\"}"),
        std::string("{\"a\":\"\xB0\xA1\"}"), std::string("{\"a\":\"\xC0\xAF\"}"), std::string("{\"a\":1"),
        std::string("{\0\"\0", 4), deep}) {
    CAPTURE(body.substr(0, 40));
    auto parsed = parse_body(post(body));
    REQUIRE_FALSE(parsed.has_value());
    CHECK(parsed.error().status == 400);
  }
}

TEST_CASE("a body of another media type is refused") {
  HttpRequest request = post("{}");
  for (const char* type : {"text/plain", "application/x-www-form-urlencoded", "application/jsonx", ""}) {
    request.headers = {{"content-type", type}};
    CHECK_FALSE(parse_body(request).has_value());
  }
  request.headers.clear();
  CHECK_FALSE(parse_body(request).has_value());
  request.headers = {{"CONTENT-TYPE", "Application/JSON ; charset=utf-8"}};
  CHECK(parse_body(request).has_value());
}

TEST_CASE("the prompt may be a string, ids, or a list of either, and nothing else") {
  const auto prompt = [](std::string_view text) {
    return read_completion_request(json::parse("{\"prompt\":" + std::string(text) + "}").as_object(), kLimits);
  };
  CHECK(std::get<std::string>(prompt("\"\"")->prompts.at(0)).empty());
  CHECK(prompt("[\"a\",\"b\"]")->prompts.size() == 2);
  CHECK(std::get<std::vector<TokenId>>(prompt("[1,2]")->prompts.at(0)) == std::vector<TokenId>{1, 2});
  CHECK(prompt("[[1],[2,3]]")->prompts.size() == 2);
  for (const Bad& bad : {Bad{"null", "prompt"},
                         {"{}", "prompt"},
                         {"5", "prompt"},
                         {"[]", "prompt"},
                         {"[[]]", "prompt[0]"},
                         {"[-1]", "prompt[0]"},
                         {"[[-1]]", "prompt[0][0]"},
                         {"[100]", "prompt[0]"},
                         {"[1099511627776]", "prompt[0]"},
                         {"[1.5]", "prompt[0]"},
                         {"[true]", "prompt[0]"},
                         {"[\"a\",5]", "prompt[1]"},
                         {"[[1],[\"a\"]]", "prompt[1][0]"},
                         {"[1,\"a\"]", "prompt[1]"}}) {
    CAPTURE(bad.fields);
    auto request = prompt(bad.fields);
    REQUIRE_FALSE(request.has_value());
    CHECK(request.error().param == bad.param);
  }
}

TEST_CASE("messages in the shapes that OpenAI accepts reach the template") {
  auto request = chat(
      R"([{"role":"developer","content":"d"},{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"name":"n"},
                          {"role":"assistant","content":null},{"role":"assistant","content":""},{"role":"user","content":"u\u0000v"}])");
  REQUIRE(request.has_value());
  const json::array& messages = request->input.messages.as_array();
  CHECK(messages.at(0).at("role") == "system");
  CHECK(messages.at(1).at("content").as_array().size() == 2);
  CHECK(messages.at(1).at("name") == "n");
  CHECK(messages.at(2).at("content") == "");
  CHECK(messages.at(4).at("content").as_string().size() == 3);
  CHECK(request->warnings.empty());
  CHECK(request->input.add_generation_prompt);
}

TEST_CASE("a bad message is a 400 with the path of what is wrong") {
  for (const Bad& bad : {Bad{"[]", "messages"},
                         {"{}", "messages"},
                         {"null", "messages"},
                         {"[5]", "messages[0]"},
                         {R"([{"content":"x"}])", "messages[0].role"},
                         {R"([{"role":"wizard","content":"x"}])", "messages[0].role"},
                         {R"([{"role":"user"}])", "messages[0].content"},
                         {R"([{"role":"user","content":null}])", "messages[0].content"},
                         {R"([{"role":"user","content":5}])", "messages[0].content"},
                         {R"([{"role":"user","content":[]}])", "messages[0].content"},
                         {R"([{"role":"user","content":[5]}])", "messages[0].content[0]"},
                         {R"([{"role":"user","content":"x"},{"role":"user","content":[{"type":"image_url"}]}])",
                          "messages[1].content[0].type"},
                         {R"([{"role":"user","content":[{"type":"text"}]}])", "messages[0].content[0].text"},
                         {R"([{"role":"user","content":"x","name":5}])", "messages[0].name"},
                         {R"([{"role":"tool","content":"x"}])", "messages[0].role"},
                         {R"([{"role":"assistant","tool_calls":[{}]}])", "messages[0].tool_calls"}}) {
    CAPTURE(bad.fields);
    auto request = chat(bad.fields);
    REQUIRE_FALSE(request.has_value());
    CHECK(request.error().param == bad.param);
  }
}

TEST_CASE("features of chat that are not there yet are refused by name unless the value changes nothing") {
  const char* user = R"([{"role":"user","content":"x"}])";
  for (const char* name : {"tools", "tool_choice", "functions", "reasoning_effort", "logprobs", "top_logprobs",
                           "continue_final_message", "documents", "chat_template"}) {
    CAPTURE(name);
    auto request = chat(user, fmt::format(",\"{}\":[{{}}]", name));
    REQUIRE_FALSE(request.has_value());
    CHECK(request.error().param == name);
  }
  CHECK(chat(user, R"(,"tools":null,"tool_choice":"none","logprobs":false,"top_logprobs":0,"parallel_tool_calls":true)")
            .has_value());
}

TEST_CASE("max_completion_tokens wins over max_tokens") {
  auto request = chat(R"([{"role":"user","content":"x"}])", R"(,"max_tokens":5,"max_completion_tokens":9)");
  REQUIRE(request.has_value());
  CHECK(request->fields.max_tokens == 9);
}

TEST_CASE("an engine request gets the end set, the stop ids and a seed") {
  auto request = completion(R"("stop_token_ids":[9],"min_tokens":3,"temperature":0.5,"seed":11)");
  REQUIRE(request.has_value());
  const engine::Request native = to_engine_request(request->fields, kLimits, 99);
  CHECK(native.sampling.end_tokens == std::vector<TokenId>{2, 7, 9});
  CHECK(native.sampling.seed == 11);
  CHECK(native.sampling.min_tokens == 3);
  auto free_running = completion(R"("ignore_eos":true,"seed":-1)");
  REQUIRE(free_running.has_value());
  const engine::Request endless = to_engine_request(free_running->fields, kLimits, 99);
  CHECK(endless.sampling.end_tokens.empty());
  CHECK(endless.sampling.seed == 99);
  CHECK(endless.stop.ignore_eos);
}
