#pragma once
// Strong ids: two kinds of number that must not be mixed are two types.
#include <compare>
#include <cstdint>
#include <functional>

namespace heddle {

template <class Tag, class Int = uint32_t>
struct Id {
  Int value{};
  constexpr Id() = default;
  constexpr explicit Id(Int v) : value(v) {}
  constexpr auto operator<=>(const Id&) const = default;
};

using TokenId = int32_t;                    // index into the vocabulary; -1 is "none"
using SeqId = Id<struct SeqTag, uint64_t>;  // one stream of tokens being computed; never reused in a process
using SlotId = Id<struct SlotTag>;          // a sequence's place in the runner: 0 ... max_num_seqs-1
using BlockId = Id<struct BlockTag>;        // a KV block of the pool

}  // namespace heddle

template <class Tag, class Int>
struct std::hash<heddle::Id<Tag, Int>> {
  size_t operator()(heddle::Id<Tag, Int> id) const noexcept { return std::hash<Int>{}(id.value); }
};
