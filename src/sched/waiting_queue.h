#pragma once
// Sequences that wait for room, first in the order that the policy gave them. Intrusive: every operation is O(1), so
// that a thousand clients that hang up at once cost a thousand steps. Loop thread only.
#include <cstdint>

#include "base/check.h"
#include "sched/sequence.h"

namespace heddle::sched {

class WaitingQueue {
 public:
  Sequence* head() const { return head_; }
  uint32_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

  void push_back(Sequence& s) { link(s, tail_, nullptr); }
  void push_front(Sequence& s) { link(s, nullptr, head_); }

  void remove(Sequence& s) {
    HEDDLE_CHECK(s.previous ? s.previous->next == &s : head_ == &s);
    (s.previous ? s.previous->next : head_) = s.next;
    (s.next ? s.next->previous : tail_) = s.previous;
    s.previous = s.next = nullptr;
    --size_;
  }

 private:
  void link(Sequence& s, Sequence* previous, Sequence* next) {
    s.previous = previous;
    s.next = next;
    (previous ? previous->next : head_) = &s;
    (next ? next->previous : tail_) = &s;
    ++size_;
  }

  Sequence* head_ = nullptr;
  Sequence* tail_ = nullptr;
  uint32_t size_ = 0;
};

}  // namespace heddle::sched
