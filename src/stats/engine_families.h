#pragma once
// What is exported of each engine, as a table: a family a row, with the series that differ in one label. The `engine`
// and `model_name` labels are added by the exporter.
#include <span>
#include <vector>

#include "stats/engine_snapshot.h"

namespace heddle::stats {

struct EngineSeries {
  const char* label;  // value of the family's label; null where it has none
  double (*read)(const EngineSnapshot& engine);
};

struct EngineFamily {
  enum class Type : uint8_t { gauge, counter };
  Type type;
  const char* name;
  const char* help;
  const char* label;                 // beside engine and model_name; null: none
  std::vector<EngineSeries> series;  // the label's closed set
};

std::span<const EngineFamily> engine_families();

}  // namespace heddle::stats
