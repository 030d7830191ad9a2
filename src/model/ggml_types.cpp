#include "model/ggml_types.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

namespace heddle::model {
namespace {

// By number, as ggml.h counts them, with the ones it has withdrawn.
constexpr std::array<std::string_view, 42> kNames = {
    "F32",        "F16",        "Q4_0",       "Q4_1",  "Q4_2",     "Q4_3",     "Q5_0",     "Q5_1",    "Q8_0",
    "Q8_1",       "Q2_K",       "Q3_K",       "Q4_K",  "Q5_K",     "Q6_K",     "Q8_K",     "IQ2_XXS", "IQ2_XS",
    "IQ3_XXS",    "IQ1_S",      "IQ4_NL",     "IQ3_S", "IQ2_S",    "IQ4_XS",   "I8",       "I16",     "I32",
    "I64",        "F64",        "IQ1_M",      "BF16",  "Q4_0_4_4", "Q4_0_4_8", "Q4_0_8_8", "TQ1_0",   "TQ2_0",
    "IQ4_NL_4_4", "IQ4_NL_4_8", "IQ4_NL_8_8", "MXFP4", "NVFP4",    "Q1_0",
};

}  // namespace

std::optional<device::QuantType> quant_type_of(uint32_t ggml_type) {
  if (ggml_type >= kNames.size()) return std::nullopt;
  for (size_t i = 0; i < device::kQuantTypes; ++i) {
    if (device::kQuantLayouts[i].name == kNames[ggml_type]) return static_cast<device::QuantType>(i);
  }
  return std::nullopt;
}

std::string ggml_type_name(uint32_t ggml_type) {
  if (ggml_type < kNames.size()) return std::string(kNames[ggml_type]);
  return fmt::format("number {}", ggml_type);
}

std::string supported_ggml_types() {
  std::string names;
  for (const device::QuantLayout& layout : device::kQuantLayouts) {
    if (!names.empty()) names += ", ";
    names += layout.name;
  }
  return names;
}

}  // namespace heddle::model
