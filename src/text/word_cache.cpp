#include "text/word_cache.h"

#include <atomic>
#include <memory>

namespace heddle::text {

uint64_t WordCache::next_tokenizer() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

WordCache& WordCache::of_thread(uint64_t tokenizer) {
  thread_local std::unique_ptr<WordCache> cache;
  if (!cache) cache = std::make_unique<WordCache>();
  if (cache->tokenizer_ != tokenizer) {
    cache->entries_.fill({});
    cache->tokenizer_ = tokenizer;
  }
  return *cache;
}

}  // namespace heddle::text
