#pragma once
// What this machine can do at best, measured: the yardstick of every benchmark line. Takes about half a second; any
// thread, but nothing else should run.
#include <cstdint>

#include "cpu/isa.h"

namespace heddle::cpu {

struct MachineSpeed {
  double int8_gmacs = 0;  // 8-bit multiply-adds, 1e9 a second, all threads, operands in registers
  double f32_gmacs = 0;   // f32 multiply-adds likewise
  double read_gbs = 0;    // sequential reads from memory, 1e9 bytes a second, all threads
};

MachineSpeed measure_machine_speed(uint32_t threads, Isa isa);

}  // namespace heddle::cpu
