#pragma once
// A vocabulary for benchmarks that need no model file: 32,000 byte-level pieces with their merges, as large and as
// mixed as a real one. Made from a fixed seed, so it is the same in every run.
#include <memory>

#include "text/tokenizer.h"

namespace heddle::app {

constexpr uint32_t kBenchVocabSize = 32000;

// Two fifths are words with a blank in front, two fifths word parts, the rest numbers, punctuation with line breaks and
// quotes, and characters of two to four bytes, one piece in a hundred only a part of one. No end token: nothing stops
// early.
std::shared_ptr<const text::Tokenizer> make_bench_tokenizer();

}  // namespace heddle::app
