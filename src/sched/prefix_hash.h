#pragma once
// Keys of the prefix cache: 128-bit hashes chained over a sequence's full blocks. A block's hash covers everything
// before it and the domain that it may be shared in. Pure functions. A hash finds a candidate; it never proves one
// (hash-is-not-identity): PrefixCache compares what was hashed.
#include <cstdint>
#include <span>
#include <string>

#include "base/ids.h"

namespace heddle::sched {

struct Hash128 {
  uint64_t low = 0, high = 0;
  bool operator==(const Hash128&) const = default;
};

// Two prompts may share blocks only if their domains are equal. Fields are hashed in order, each after its length and
// its position, so that equal text in different fields gives different domains.
struct PrefixDomain {
  std::string model;         // fingerprint of weights and configuration
  std::string salt;          // the request's cache_salt
  std::string adapter = {};  // what is added to the weights, e.g. a LoRA's name and path; empty: nothing
  bool operator==(const PrefixDomain&) const = default;
};

Hash128 hash_domain(uint64_t seed, const PrefixDomain& domain);
Hash128 hash_block(const Hash128& parent, std::span<const TokenId> tokens);

}  // namespace heddle::sched
