#include "api/live_ids.h"

#include <doctest/doctest.h>

using namespace heddle::api;
using Ids = std::vector<std::string>;

TEST_CASE("an id finds its own engine requests, not those of an id that begins with it") {
  LiveIds live;
  const auto one = live.add("cmpl-a", {"cmpl-a-1-0", "cmpl-a-1-1"});
  const auto longer = live.add("cmpl-a-b", {"cmpl-a-b-2-0"});
  CHECK(live.find("cmpl-a") == Ids{"cmpl-a-1-0", "cmpl-a-1-1"});
  CHECK(live.find("cmpl-a-b") == Ids{"cmpl-a-b-2-0"});
  CHECK(live.find("cmpl").empty());
}

TEST_CASE("an id used twice finds both, and each is gone with its handle") {
  LiveIds live;
  auto first = live.add("x", {"x-1-0"});
  auto second = live.add("x", {"x-2-0"});
  CHECK(live.find("x") == Ids{"x-1-0", "x-2-0"});
  first.reset();
  CHECK(live.find("x") == Ids{"x-2-0"});
  second.reset();
  CHECK(live.size() == 0);
}

TEST_CASE("a handle may outlive the list") {
  std::shared_ptr<void> handle;
  {
    LiveIds live;
    handle = live.add("x", {"x-1-0"});
  }
  handle.reset();
}
