#pragma once
// Which tokens may come next in one sequence: a grammar, as the step loop sees it. Owned by the sequence; called on the
// loop thread, with committed tokens only, in order. A row that is sampled with a mask waits on the host for every
// token before it, so its step is launched in two halves (design: the step pipeline).
#include <cstdint>
#include <span>

#include "base/ids.h"

namespace heddle::engine {

class TokenMasker {
 public:
  virtual ~TokenMasker() = default;
  // Sets the bit of each allowed token, clears the others. [ceil(vocab / 32)] words, id i in bit i % 32 of word i / 32.
  virtual void fill(std::span<uint32_t> mask) = 0;
  // The token was generated. False: it is not of the language, and the sequence ends with reason error.
  virtual bool accept(TokenId token) = 0;
};

}  // namespace heddle::engine
