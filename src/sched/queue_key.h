#pragma once
// A queued sequence's place: smaller comes first. Given by the policy when the sequence is queued, kept until it
// leaves.
#include <compare>
#include <cstdint>

namespace heddle::sched {

struct QueueKey {
  int32_t group = 0;
  int64_t number = 0;
  auto operator<=>(const QueueKey&) const = default;  // NOLINT(modernize-use-nullptr): the 0 of a rewritten comparison
};

}  // namespace heddle::sched
