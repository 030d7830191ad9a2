#pragma once
// Floating-point environment of a computing thread: round to nearest, denormals kept, exceptions masked; one value for
// every thread, since a thread that flushes denormals would round differently (batch-invariance). Where the machine is
// not x86 the default environment is the same thing.
#include <cstdint>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace heddle::cpu {

class CanonicalFloat {
 public:
#if defined(__x86_64__)
  CanonicalFloat() : before_(_mm_getcsr()) {
    if ((before_ & ~kStickyFlags) != kCanonical) _mm_setcsr(kCanonical);
  }
  ~CanonicalFloat() {
    if ((before_ & ~kStickyFlags) != kCanonical) _mm_setcsr(before_);
  }
#else
  CanonicalFloat() {}
#endif
  CanonicalFloat(const CanonicalFloat&) = delete;
  CanonicalFloat& operator=(const CanonicalFloat&) = delete;

 private:
  static constexpr uint32_t kCanonical = 0x1f80;
  static constexpr uint32_t kStickyFlags = 0x3f;
  [[maybe_unused]] uint32_t before_ = kCanonical;
};

}  // namespace heddle::cpu
