#pragma once
// What this machine can do at most, measured: the yardsticks of `heddle bench` and bench_linear. Each call computes on
// the calling thread for some 20-100 ms; run one on each of several threads for what they do together. Any thread;
// never fails.
#include "cpu/isa.h"

namespace heddle::cpu {

// Products of 8-bit integers a second that the set's own dot instruction sustains (vpdpbusd; vpmaddubsw with vpaddw;
// plain multiplication), in 1e9.
double integer_peak(Isa isa);

// Bytes a second read in order from memory that no cache holds, in 1e9.
double read_bandwidth();

}  // namespace heddle::cpu
