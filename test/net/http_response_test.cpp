#include "net/http_response.h"

#include <doctest/doctest.h>

using namespace heddle::net;

TEST_CASE("a whole answer has its length, date and the connection's fate") {
  ResponseHead head;
  head.status = 404;
  head.content_type = "application/json";
  head.length = 12;
  head.request_id = "id-1";
  const heddle::api::HeaderList common = {{"Vary", "Origin"}}, own = {{"Allow", "GET"}};
  head.common = &common;
  head.headers = &own;
  std::string out;
  append_head(out, head, 784111777);
  CHECK(out ==
        "HTTP/1.1 404 Not Found\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nServer: heddle\r\nContent-Type: "
        "application/json\r\n"
        "Content-Length: 12\r\nX-Request-Id: id-1\r\nVary: Origin\r\nAllow: GET\r\n\r\n");
}

TEST_CASE("streams are chunked in HTTP/1.1 and end with the connection in HTTP/1.0") {
  ResponseHead head;
  head.framing = Framing::chunked;
  std::string out;
  append_head(out, head, 0);
  CHECK(out.find("Transfer-Encoding: chunked\r\n") != std::string::npos);
  CHECK(out.find("Content-Length") == std::string::npos);
  CHECK(out.find("Connection") == std::string::npos);

  head.framing = Framing::until_close;
  head.is_http_10 = true;
  head.keep_alive = false;
  out.clear();
  append_head(out, head, 0);
  CHECK(out.find("Transfer-Encoding") == std::string::npos);
  CHECK(out.find("Connection: close\r\n") != std::string::npos);
}

TEST_CASE("HTTP/1.0 is told when the connection is kept") {
  ResponseHead head;
  head.is_http_10 = true;
  std::string out;
  append_head(out, head, 0);
  CHECK(out.find("Connection: keep-alive\r\n") != std::string::npos);
}

TEST_CASE("204 and 304 have no length") {
  for (const int status : {204, 304}) {
    ResponseHead head;
    head.status = status;
    std::string out;
    append_head(out, head, 0);
    CHECK(out.find("Content-Length") == std::string::npos);
  }
}

TEST_CASE("a header's value cannot end the header") {
  ResponseHead head;
  const heddle::api::HeaderList own = {{"X", "a\r\nSet-Cookie: b\n"}};
  head.headers = &own;
  std::string out;
  append_head(out, head, 0);
  CHECK(out.find("X: a  Set-Cookie: b \r\n") != std::string::npos);
}

TEST_CASE("chunks carry their size in hexadecimal, and no data is no chunk") {
  std::string out;
  append_chunk(out, "");
  CHECK(out.empty());
  append_chunk(out, std::string(26, 'x'));
  CHECK(out == "1a\r\n" + std::string(26, 'x') + "\r\n");
}
