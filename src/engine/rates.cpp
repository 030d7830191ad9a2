#include "engine/rates.h"

#include <cmath>

namespace heddle::engine {
namespace {
constexpr double kHalfLife = 10;  // seconds of device time
constexpr uint32_t kManyRows = 64;

bool is_mostly_prompt(uint32_t n_prompt_rows, uint32_t n_decode_rows) {
  return n_prompt_rows >= kManyRows && n_prompt_rows >= 3 * uint64_t{n_decode_rows};
}
}  // namespace

void RateMeter::add_step(uint32_t n_prompt_rows, uint32_t n_decode_rows, Monotonic::duration device_time) {
  const double t = seconds(device_time);
  if (t <= 0) return;
  const double keep = std::exp2(-t / kHalfLife);
  if (is_mostly_prompt(n_prompt_rows, n_decode_rows)) {
    prefill_rows_ = prefill_rows_ * keep + n_prompt_rows;
    prefill_seconds_ = prefill_seconds_ * keep + t;
  } else if (n_prompt_rows == 0 && n_decode_rows > 0) {
    decode_steps_ = decode_steps_ * keep + 1;
    decode_seconds_ = decode_seconds_ * keep + t;
  }
}

Rates RateMeter::rates() const {
  return {prefill_seconds_ > 0 ? prefill_rows_ / prefill_seconds_ : 0,
          decode_seconds_ > 0 ? decode_steps_ / decode_seconds_ : 0};
}

double seconds_to_first_token(const Rates& rates, uint64_t uncached_tokens, double speed_up) {
  return rates.prefill > 0 ? static_cast<double>(uncached_tokens) / (rates.prefill * speed_up) : 0;
}

}  // namespace heddle::engine
