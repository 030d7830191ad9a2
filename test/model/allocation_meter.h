#pragma once
// Counts what the process takes from operator new, so that a test can bound what a hostile file costs.
#include <cstddef>

namespace heddle::model {

struct Allocated {
  size_t total = 0;    // bytes asked for, freed ones included
  size_t largest = 0;  // one request
};

void start_metering();
Allocated stop_metering();

}  // namespace heddle::model
