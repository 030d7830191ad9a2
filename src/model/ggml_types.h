#pragma once
// The tensor type numbers of GGUF files: which of them heddle computes with, and the names of all of them, so that a
// refusal can say what the file has. Pure; any thread.
#include <cstdint>
#include <optional>
#include <string>

#include "device/quant.h"

namespace heddle::model {

std::optional<device::QuantType> quant_type_of(uint32_t ggml_type);
std::string ggml_type_name(uint32_t ggml_type);  // "IQ4_NL"; "number 99" for one that nobody knows
std::string supported_ggml_types();              // "F32, F16, ..."

}  // namespace heddle::model
