#include "sched/waiting_queue.h"

#include <algorithm>

namespace heddle::sched {

void WaitingQueue::push(Sequence& s, uint32_t line) {
  while (lines_.size() <= line) lines_.emplace_back();
  const bool ready = s.deferral == Deferral::none;
  const auto [at, inserted] = (ready ? lines_[line].ready : lines_[line].deferred).insert(s);
  HEDDLE_CHECK(inserted);
  ++(ready ? n_ready_ : n_deferred_);
}

void WaitingQueue::remove(Sequence& s, uint32_t line) {
  HEDDLE_CHECK_OP(line, <, lines_.size());
  const bool ready = s.deferral == Deferral::none;
  Ordered& set = ready ? lines_[line].ready : lines_[line].deferred;
  set.erase(set.iterator_to(s));
  --(ready ? n_ready_ : n_deferred_);
}

void WaitingQueue::defer(Sequence& s, uint32_t line, Deferral deferral) {
  remove(s, line);
  s.deferral = deferral;
  push(s, line);
}

Sequence* WaitingQueue::head(uint32_t line) const {
  if (line >= lines_.size() || lines_[line].ready.empty()) return nullptr;
  return const_cast<Sequence*>(&*lines_[line].ready.begin());
}

std::vector<const Sequence*> WaitingQueue::in_order() const {
  std::vector<const Sequence*> all;
  for (const Line& line : lines_) {
    const auto first = static_cast<ptrdiff_t>(all.size());
    for (const Sequence& s : line.ready) all.push_back(&s);
    for (const Sequence& s : line.deferred) all.push_back(&s);
    std::sort(all.begin() + first, all.end(), [](const Sequence* a, const Sequence* b) { return a->key < b->key; });
  }
  return all;
}

}  // namespace heddle::sched
