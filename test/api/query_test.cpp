#include "api/query.h"

#include <doctest/doctest.h>

using namespace heddle::api;

TEST_CASE("names and values of a query are decoded, in order, repeated ones too") {
  const auto query = parse_query("tags=weights&tags=kv%5Fcache&&mode&empty=&a+b=c%2Bd&x=1=2");
  REQUIRE(query.has_value());
  REQUIRE(query->size() == 6);
  CHECK((*query)[0].value == "weights");
  CHECK((*query)[1].name == "tags");
  CHECK((*query)[1].value == "kv_cache");
  CHECK((*query)[2].name == "mode");
  CHECK((*query)[2].value.empty());
  CHECK((*query)[3].value.empty());
  CHECK((*query)[4].name == "a b");
  CHECK((*query)[4].value == "c+d");
  CHECK((*query)[5].value == "1=2");
  CHECK(parse_query("")->empty());
}

TEST_CASE("a broken escape is an error that shows where") {
  for (const char* text : {"a=%", "a=%4", "a=%g1", "%zz=1", "a=1&b=%-1"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_query(text).has_value());
  }
  CHECK(parse_query("a=1&b=%x1").error().message.find("b=%x1") != std::string::npos);
}
