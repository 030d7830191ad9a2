#pragma once
// Sequences that wait, in one or several lines (a policy that serves tenants in turn has a line for each), each line in
// the order of its keys. A deferred sequence keeps its place and is passed over: ready ones and deferred ones of a line
// are two ordered sets. Intrusive: no allocation per sequence, O(log n) for every operation, so that a thousand clients
// that hang up at once cost a thousand short steps. Loop thread only.
#include <boost/intrusive/set.hpp>
#include <cstdint>
#include <deque>
#include <vector>

#include "base/check.h"
#include "sched/sequence.h"

namespace heddle::sched {

class WaitingQueue {
 public:
  struct ByKey {
    bool operator()(const Sequence& a, const Sequence& b) const { return a.key < b.key; }
  };
  using Hook = boost::intrusive::member_hook<Sequence, Sequence::Hook, &Sequence::hook>;
  using Ordered = boost::intrusive::set<Sequence, Hook, boost::intrusive::compare<ByKey>>;

  // `line` is remembered by the caller's policy; the sequence's key is set and differs from all others of its line.
  void push(Sequence& s, uint32_t line);
  void remove(Sequence& s, uint32_t line);
  // Sets the reason and moves the sequence between ready and deferred.
  void defer(Sequence& s, uint32_t line, Deferral deferral);

  uint32_t n_lines() const { return static_cast<uint32_t>(lines_.size()); }
  const Ordered& ready(uint32_t line) const { return lines_[line].ready; }
  uint32_t n_ready() const { return n_ready_; }
  uint32_t n_deferred() const { return n_deferred_; }
  uint32_t size() const { return n_ready_ + n_deferred_; }
  // The first ready one of a line, or null.
  Sequence* head(uint32_t line) const;
  std::vector<const Sequence*> in_order() const;  // line by line, deferred ones in their places; for tests and views

 private:
  struct Line {
    Ordered ready, deferred;
  };
  std::deque<Line> lines_;  // never moves: the sets' headers are pointed to
  uint32_t n_ready_ = 0, n_deferred_ = 0;
};

}  // namespace heddle::sched
