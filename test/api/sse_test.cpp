#include "api/sse.h"

#include <doctest/doctest.h>

using namespace heddle::api;

TEST_CASE("an event is one data frame behind what is there") {
  std::string out = "before";
  append_sse_event(out, "{\"a\":1}");
  CHECK(out == "beforedata: {\"a\":1}\n\n");
}

TEST_CASE("line breaks in the data become data lines of the same event") {
  std::string out;
  append_sse_event(out, "a\nb\r\nc\rd");
  CHECK(out == "data: a\ndata: b\ndata: c\ndata: d\n\n");
  out.clear();
  append_sse_event(out, "");
  CHECK(out == "data: \n\n");
  out.clear();
  append_sse_event(out, "a\n");
  CHECK(out == "data: a\ndata: \n\n");
}

TEST_CASE("the fixed frames are frames of their own") {
  CHECK(sse_done == "data: [DONE]\n\n");
  CHECK(sse_keep_alive.starts_with(":"));
  CHECK(sse_keep_alive.ends_with("\n\n"));
}
