#include "net/outbox.h"

#include <doctest/doctest.h>

using heddle::net::Outbox;

TEST_CASE("bytes leave the outbox in order") {
  Outbox box;
  box.tail() += "abcdef";
  box.consume(2);
  box.tail() += "gh";
  CHECK(box.view() == "cdefgh");
  CHECK(box.size() == 6);
  box.consume(6);
  CHECK(box.empty());
}

TEST_CASE("a reader that never quite catches up does not make the outbox grow") {
  Outbox box;
  box.tail() += std::string(1000, 'x');
  for (int i = 0; i < 10'000; ++i) {
    box.tail() += std::string(100, 'y');
    box.consume(100);
  }
  CHECK(box.size() == 1000);
  CHECK(box.tail().capacity() < 8192);
}

TEST_CASE("memory is kept between events and given back after a burst") {
  Outbox box;
  box.tail() += std::string(300, 'x');
  const char* place = box.view().data();
  box.consume(300);
  box.tail() += std::string(300, 'y');
  CHECK(box.view().data() == place);
  box.tail() += std::string(1'000'000, 'z');
  box.consume(box.size());
  CHECK(box.tail().capacity() < 16 * 1024);
}
