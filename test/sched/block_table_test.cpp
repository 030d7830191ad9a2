#include "sched/block_table.h"

#include <doctest/doctest.h>

#include <memory>
#include <vector>

namespace heddle::sched {
namespace {

using Ids = std::vector<uint32_t>;
Ids ids(std::span<const BlockId> blocks) {
  Ids out;
  for (const BlockId id : blocks) out.push_back(id.value);
  return out;
}

BlockTable table_of(const Ids& blocks) {
  BlockTable table;
  table.reserve(8);
  for (const uint32_t id : blocks) table.push(BlockId(id));
  return table;
}

TEST_CASE("a span taken before the table grew or shrank reads what it read") {
  BlockTable table = table_of({5, 6});
  const auto launched = table.span();
  table.push(BlockId(7));
  CHECK(ids(launched) == Ids{5, 6});
  CHECK(table.pop() == BlockId(7));
  CHECK(table.pop() == BlockId(6));
  CHECK(table.size() == 1);
  CHECK(ids(launched) == Ids{5, 6});
}

TEST_CASE("an entry replaced under a step in flight changes for later spans alone, until that step has landed") {
  BlockTable table = table_of({5, 6, 7});
  const auto step_3 = table.span();
  table.replace(1, BlockId(9), 3);
  const auto step_4 = table.span();
  table.replace(0, BlockId(8), 4);
  CHECK(ids(step_3) == Ids{5, 6, 7});
  CHECK(ids(step_4) == Ids{5, 9, 7});
  CHECK(ids(table.span()) == Ids{8, 9, 7});
  table.landed(3);
  CHECK(ids(step_4) == Ids{5, 9, 7});
  table.push(BlockId(10));
  CHECK(ids(step_4) == Ids{5, 9, 7});
  CHECK(ids(table.span()) == Ids{8, 9, 7, 10});
}

TEST_CASE("entries replaced between two launches cost one copy, and none if nothing is in flight") {
  BlockTable table = table_of({5, 6, 7});
  const BlockId* before = table.span().data();
  table.replace(0, BlockId(1), 3);
  const BlockId* copy = table.span().data();
  CHECK(copy != before);
  table.replace(1, BlockId(2), 3);
  CHECK(table.span().data() == copy);
  table.landed(3);
  table.replace(2, BlockId(3), 3);
  CHECK(table.span().data() == copy);
  table.landed(4);
  table.replace(2, BlockId(4), 4);
  CHECK(table.span().data() == copy);
  CHECK(ids(table.span()) == Ids{1, 2, 4});
}

TEST_CASE("memory that came back serves the next copy: replacing in every step takes two arrays in all") {
  BlockTable table = table_of({5, 6, 7});
  const BlockId* const first = table.span().data();
  table.replace(0, BlockId(0), 1);
  const BlockId* const second = table.span().data();
  std::vector<std::unique_ptr<BlockId[]>> others;  // would be given memory that was freed
  for (uint32_t step = 2; step < 12; ++step) {
    table.landed(step - 1);
    others.push_back(std::make_unique<BlockId[]>(table.capacity()));
    table.replace(0, BlockId(step), step);
    CHECK(table.span().data() == (step % 2 == 0 ? first : second));
    CHECK(ids(table.span()) == Ids{step, 6, 7});
  }
}

TEST_CASE("making more room keeps the entries, and later copies have the new size") {
  BlockTable table = table_of({5, 6});
  table.replace(0, BlockId(4), 1);
  table.landed(1);  // leaves an array of the old size behind
  table.reserve(4);
  CHECK(table.capacity() == 8);
  table.reserve(20);
  CHECK(table.capacity() == 20);
  CHECK(ids(table.span()) == Ids{4, 6});
  table.replace(1, BlockId(3), 2);
  for (uint32_t i = 2; i < 20; ++i) table.push(BlockId(i));
  CHECK(table.size() == 20);
  CHECK(table[1] == BlockId(3));
  CHECK(table[19] == BlockId(19));
}

}  // namespace
}  // namespace heddle::sched
