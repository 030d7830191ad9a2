#include "text/detokenizer.h"

#include <cstring>
#include <string_view>

#include "text/utf8.h"

namespace heddle::text {

Detokenizer::Detokenizer(const Vocab& vocab, DetokenizeOptions options)
    : vocab_(&vocab),
      skip_special_(options.skip_special),
      drop_space_(options.at_text_start && vocab.add_space_prefix()) {}

void Detokenizer::feed(TokenId id, std::string& out) {
  std::string_view bytes = vocab_->token_bytes(id);
  if (vocab_->is_special(id)) {
    // Encoding puts its blank before words at the start only, not after a control token that the text begins with.
    if (id != vocab_->bos()) drop_space_ = false;
    if (skip_special_) return;
  } else if (drop_space_ && !bytes.empty()) {
    drop_space_ = false;
    if (bytes.front() == ' ') bytes.remove_prefix(1);
  }
  feed_bytes(bytes, out);
}

void Detokenizer::feed_bytes(std::string_view bytes, std::string& out) {
  // First finish the character that is held; its bytes and at most three more are looked at together.
  while (n_held_ > 0 && !bytes.empty()) {
    std::array<char, 4> start;
    std::memcpy(start.data(), held_.data(), n_held_);
    start[n_held_] = bytes.front();
    const Utf8Step step = utf8_step(start.data(), start.data() + n_held_ + 1);
    if (step.kind == Utf8Step::Kind::ill_formed) {
      // What was held is the ill-formed part; the new byte starts afresh.
      out.append(kReplacement);
      n_held_ = 0;
      break;
    }
    if (step.kind == Utf8Step::Kind::incomplete) {
      held_[n_held_++] = bytes.front();
    } else {
      out.append(start.data(), step.length);
      n_held_ = 0;
    }
    bytes.remove_prefix(1);
  }
  while (!bytes.empty()) {
    const size_t valid = utf8_valid_prefix(bytes);
    out.append(bytes.substr(0, valid));
    bytes.remove_prefix(valid);
    if (bytes.empty()) return;
    const Utf8Step step = utf8_step(bytes.data(), bytes.data() + bytes.size());
    if (step.kind == Utf8Step::Kind::incomplete) {
      std::memcpy(held_.data(), bytes.data(), bytes.size());
      n_held_ = static_cast<uint8_t>(bytes.size());
      return;
    }
    out.append(kReplacement);
    bytes.remove_prefix(step.length);
  }
}

void Detokenizer::flush(std::string& out) {
  if (n_held_ > 0) out.append(kReplacement);
  n_held_ = 0;
}

std::string decode(const Vocab& vocab, std::span<const TokenId> ids, DetokenizeOptions options) {
  std::string out;
  Detokenizer detokenizer(vocab, options);
  for (const TokenId id : ids) detokenizer.feed(id, out);
  detokenizer.flush(out);
  return out;
}

}  // namespace heddle::text
