#include "engine/rates.h"

#include <doctest/doctest.h>

namespace heddle::engine {
namespace {
using std::chrono::milliseconds;

TEST_CASE("rates: nothing measured is 0, and predicts nothing") {
  RateMeter meter;
  CHECK(meter.rates().prefill == 0);
  CHECK(meter.rates().decode == 0);
  meter.add_step(0, 0, milliseconds(10));
  meter.add_step(16, 0, milliseconds(0));
  CHECK(meter.rates().prefill == 0);
  CHECK(seconds_to_first_token(meter.rates(), 1000, 2) == 0);
}

TEST_CASE("rates: prompt rows a second, and decode steps a second whatever their width") {
  RateMeter meter;
  for (int i = 0; i < 4; ++i) meter.add_step(100, 0, milliseconds(50));
  for (int i = 0; i < 4; ++i) meter.add_step(0, 64, milliseconds(20));
  CHECK(meter.rates().prefill == doctest::Approx(2000));
  CHECK(meter.rates().decode == doctest::Approx(50));
}

TEST_CASE(
    "rates: a step that is mostly prompt counts for prefill with its whole time, one with a little of it for nothing") {
  RateMeter meter;
  meter.add_step(0, 8, milliseconds(10));
  meter.add_step(16, 0, milliseconds(100));  // a short prompt, or the rest of a cached one
  meter.add_step(100, 50, milliseconds(900));
  CHECK(meter.rates().prefill == 0);
  meter.add_step(100, 8, milliseconds(200));
  CHECK(meter.rates().prefill == doctest::Approx(500));
  CHECK(meter.rates().decode == doctest::Approx(100));
}

TEST_CASE("rates: what lies ten seconds of device time back counts half") {
  RateMeter meter;
  meter.add_step(1000, 0, milliseconds(10000));  // 100 a second
  meter.add_step(3000, 0, milliseconds(10000));  // 300 a second
  CHECK(meter.rates().prefill == doctest::Approx((500 + 3000) / 15.0));
}

TEST_CASE("rates: a change of speed is followed") {
  RateMeter meter;
  for (int i = 0; i < 3000; ++i) meter.add_step(0, 1, milliseconds(10));
  CHECK(meter.rates().decode == doctest::Approx(100));
  for (int i = 0; i < 3000; ++i) meter.add_step(0, 1, milliseconds(40));
  CHECK(meter.rates().decode == doctest::Approx(25).epsilon(0.01));
}

TEST_CASE("rates: seconds to the first token at a multiple of the measured rate") {
  CHECK(seconds_to_first_token({.prefill = 100, .decode = 1}, 1000, 1) == doctest::Approx(10));
  CHECK(seconds_to_first_token({.prefill = 100, .decode = 1}, 1000, 2) == doctest::Approx(5));
  CHECK(seconds_to_first_token({.prefill = 0, .decode = 1}, 1000, 2) == 0);
}

}  // namespace
}  // namespace heddle::engine
