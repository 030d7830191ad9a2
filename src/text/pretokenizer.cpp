#include "text/pretokenizer.h"

#include <array>
#include <utility>

namespace heddle::text {

namespace {

constexpr std::array<std::pair<std::string_view, PreTokenizer>, 6> kNames = {{
    {"gpt-2", PreTokenizer::gpt2},
    {"smollm", PreTokenizer::smollm},
    {"llama-bpe", PreTokenizer::llama3},
    {"llama3", PreTokenizer::llama3},
    {"llama-v3", PreTokenizer::llama3},
    {"qwen2", PreTokenizer::qwen2},
}};

}  // namespace

std::optional<PreTokenizer> find_pre_tokenizer(std::string_view name) {
  for (const auto& [known, kind] : kNames)
    if (known == name) return kind;
  return std::nullopt;
}

std::string_view known_pre_tokenizers() { return "gpt-2, smollm, llama-bpe, qwen2"; }

}  // namespace heddle::text
