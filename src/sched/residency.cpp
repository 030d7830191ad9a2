#include "sched/residency.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace heddle::sched {

ResidencySampler::ResidencySampler(uint32_t n_blocks, double share, uint64_t seed)
    : share_(share), random_(seed), samples_(share > 0 ? n_blocks : 0) {
  HEDDLE_CHECK(share >= 0 && share <= 1);
}

void ResidencySampler::on_allocate(BlockId block, MonotonicTime now) {
  if (samples_.empty()) return;
  Sample& sample = samples_[block.value];
  sample.watched = std::generate_canonical<double, 53>(random_) < share_;
  sample.allocated = now;
  sample.n_hits = 0;
}

void ResidencySampler::on_hit(BlockId block, MonotonicTime now) {
  if (samples_.empty()) return;
  Sample& sample = samples_[block.value];
  if (sample.watched) sample.hits[sample.n_hits++ % kRing] = now;
}

void ResidencySampler::on_evict(BlockId block, MonotonicTime now) {
  if (samples_.empty()) return;
  Sample& sample = samples_[block.value];
  if (!sample.watched) return;
  sample.watched = false;
  Residency& seen = observed_.emplace_back();
  seen.lifetime = seconds(now - sample.allocated);
  seen.idle = seen.lifetime;
  if (sample.n_hits == 0) return;
  seen.idle = seconds(now - sample.hits[(sample.n_hits - 1) % kRing]);
  for (auto i = sample.n_hits - std::min<uint64_t>(sample.n_hits, kRing) + 1; i < sample.n_hits; ++i)
    seen.reuse_gaps.push_back(seconds(sample.hits[i % kRing] - sample.hits[(i - 1) % kRing]));
}

void ResidencySampler::on_reset() {
  for (Sample& sample : samples_) sample.watched = false;
}

std::vector<Residency> ResidencySampler::take() { return std::exchange(observed_, {}); }

}  // namespace heddle::sched
