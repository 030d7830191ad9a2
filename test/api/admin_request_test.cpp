#include "api/admin_request.h"

#include <doctest/doctest.h>

using namespace heddle;
using namespace heddle::api;

namespace {

HttpRequest post(std::string body) {
  HttpRequest request;
  request.headers = {{"Content-Type", "application/json"}};
  request.body = std::move(body);
  return request;
}

}  // namespace

TEST_CASE("pause and sleep have the defaults of vLLM") {
  CHECK(read_pause("")->mode == engine::PauseMode::abort);
  CHECK(read_pause("")->clear_cache);
  CHECK(read_sleep("")->level == engine::SleepLevel::weights);
  CHECK(read_sleep("")->mode == engine::PauseMode::abort);
  CHECK_FALSE(*read_reset_prefix_cache(""));
}

TEST_CASE("parameters of the admin endpoints are read from the query") {
  CHECK(read_pause("mode=keep&clear_cache=false")->mode == engine::PauseMode::keep);
  CHECK_FALSE(read_pause("mode=wait&clear_cache=0")->clear_cache);
  CHECK(read_sleep("level=2&mode=wait")->level == engine::SleepLevel::discard);
  CHECK(read_sleep("level=0")->level == engine::SleepLevel::pause);
  CHECK(*read_reset_prefix_cache("reset_running_requests=True&reset_external=false"));
}

TEST_CASE("wake_up without tags wakes everything, with tags what they name") {
  const auto all = read_wake_up("");
  CHECK((all->tags.weights && all->tags.kv_cache && all->tags.scheduling && all->named.empty()));
  const auto some = read_wake_up("tags=weights&tags=scheduling");
  CHECK((some->tags.weights && !some->tags.kv_cache && some->tags.scheduling));
  CHECK(some->named == std::vector<std::string>{"weights", "scheduling"});
}

TEST_CASE("a bad value of an admin endpoint is one line that names the parameter") {
  const auto names = [](const auto& read, std::string_view word) {
    CAPTURE(word);
    REQUIRE_FALSE(read.has_value());
    CHECK(read.error().message.find(word) != std::string::npos);
  };
  names(read_pause("mode=stop"), "`mode`");
  names(read_pause("clear_cache=maybe"), "`clear_cache`");
  names(read_pause("zeal=1"), "`zeal`");
  names(read_pause("mode=%zz"), "mode=");
  names(read_sleep("level=3"), "`level`");
  names(read_sleep("level=-1"), "`level`");
  names(read_sleep("level="), "`level`");
  names(read_sleep("mode=x"), "`mode`");
  names(read_wake_up("tags=lora"), "`tags`");
  names(read_wake_up("tag=weights"), "`tag`");
  names(read_reset_prefix_cache("reset_external=true"), "`reset_external`");
  names(read_reset_prefix_cache("reset_running_requests=2"), "`reset_running_requests`");
  names(read_nothing("x=1"), "`x`");
  names(read_abort_requests(post("{\"request_ids\":\"a\"}")), "`request_ids`");
  names(read_abort_requests(post("{\"request_ids\":[1]}")), "`request_ids[0]`");
  names(read_abort_requests(post("{\"ids\":[]}")), "`ids`");
  names(read_abort_requests(post("[]")), "object");
}

TEST_CASE("no body, no list and an empty list all mean every request") {
  CHECK(read_abort_requests(HttpRequest{})->empty());
  CHECK(read_abort_requests(post("{}"))->empty());
  CHECK(read_abort_requests(post("{\"request_ids\":null}"))->empty());
  CHECK(read_abort_requests(post("{\"request_ids\":[]}"))->empty());
  CHECK(read_abort_requests(post("{\"request_ids\":[\"a\",\"b\"]}")) == std::vector<std::string>{"a", "b"});
}
