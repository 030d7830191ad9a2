#include "engine/wave.h"

#include <algorithm>

#include "base/check.h"

namespace heddle::engine {

Wave::Wave(uint32_t n_engines, uint32_t sync_interval)
    : sync_interval_(sync_interval), barrier_(sync_interval), counters_(n_engines), reports_(n_engines) {
  HEDDLE_CHECK_OP(n_engines, >=, 1u);
  HEDDLE_CHECK_OP(sync_interval, >=, 1u);
}

uint32_t Wave::arrive(uint32_t stamp) {
  HEDDLE_CHECK_OP(stamp, <=, current_);
  running_ = true;
  return current_;
}

void Wave::count_step(uint32_t rank) {
  HEDDLE_CHECK(may_step(rank));
  ++counters_[rank];
}

Wave::Agreement Wave::report(uint32_t rank, bool unfinished) {
  HEDDLE_CHECK(running_ && !may_step(rank) && !has_left(rank));
  reports_[rank] = unfinished ? Report::unfinished : Report::finished;
  return agree();
}

Wave::Agreement Wave::leave(uint32_t rank) {
  reports_[rank] = Report::left;
  return running_ ? agree() : Agreement::open;
}

Wave::Agreement Wave::agree() {
  const auto any = [this](Report wanted) {
    return std::find(reports_.begin(), reports_.end(), wanted) != reports_.end();
  };
  if (any(Report::none)) return Agreement::open;
  const bool unfinished = any(Report::unfinished);
  for (Report& report : reports_)
    if (report != Report::left) report = Report::none;
  if (unfinished) {
    barrier_ += sync_interval_;
    return Agreement::go_on;
  }
  running_ = false;
  ++current_;
  ++n_complete_;
  barrier_ = sync_interval_;
  std::fill(counters_.begin(), counters_.end(), 0u);
  return Agreement::complete;
}

}  // namespace heddle::engine
