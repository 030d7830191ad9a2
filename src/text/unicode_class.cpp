#include "text/unicode_class.h"

#include <cstddef>
#include <span>

namespace heddle::text {

namespace {

struct CodePointRange {
  uint32_t begin, end;
};

#include "text/unicode_classes.inc"

uint8_t table[0x110000];

void mark(std::span<const CodePointRange> ranges, uint8_t bit) {
  for (const CodePointRange& range : ranges)
    for (uint32_t c = range.begin; c < range.end; ++c) table[c] = static_cast<uint8_t>(table[c] | bit);
}

const uint8_t* filled() {
  mark(letter_ranges, unicode::letter);
  mark(number_ranges, unicode::number);
  mark(space_ranges, unicode::space);
  mark(digit_only_ranges, unicode::digit_only);
  mark(nfc_open_ranges, unicode::nfc_open);
  mark(nfc_first_ranges, unicode::nfc_first);
  return table;
}

}  // namespace

const uint8_t* unicode_classes() {
  static const uint8_t* const classes = filled();
  return classes;
}

}  // namespace heddle::text
