#include "cpu/isa.h"

#include <doctest/doctest.h>

#include <cstdlib>

using namespace heddle;
using namespace heddle::cpu;

TEST_CASE("every machine runs the scalar set, and the best is chosen unasked") {
  REQUIRE(!available_isas().empty());
  CHECK(available_isas().front() == Isa::scalar);
  unsetenv("HEDDLE_ISA");
  CHECK(choose_isa().value() == available_isas().back());
}

TEST_CASE("an instruction set is chosen by name, from the flag before the environment") {
  setenv("HEDDLE_ISA", "scalar", 1);
  CHECK(choose_isa().value() == Isa::scalar);
  for (const Isa isa : available_isas()) CHECK(choose_isa(isa_name(isa)).value() == isa);
  setenv("HEDDLE_ISA", "mmx", 1);
  REQUIRE(!choose_isa().has_value());
  CHECK(choose_isa().error().message == "HEDDLE_ISA: \"mmx\" is none of scalar, avx2, avx512");
  unsetenv("HEDDLE_ISA");
  REQUIRE(!choose_isa("AVX2").has_value());
  CHECK(choose_isa("AVX2").error().message == "instruction set: \"AVX2\" is none of scalar, avx2, avx512");
}

TEST_CASE("an instruction set that the machine lacks is refused") {
  for (const Isa isa : {Isa::avx2, Isa::avx512}) {
    bool mine = false;
    for (const Isa available : available_isas()) mine = mine || available == isa;
    CHECK(choose_isa(isa_name(isa)).has_value() == mine);
  }
}
