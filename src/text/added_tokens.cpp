#include "text/added_tokens.h"

#include <algorithm>
#include <string>
#include <tuple>

#include "text/spm_blank.h"

namespace heddle::text {

AddedTokens::AddedTokens(const Vocab& vocab) : nodes_(1) {
  struct Entry {
    std::string text;
    TokenId id;
  };
  std::vector<Entry> entries;
  for (const TokenId id : vocab.added_tokens()) {
    if (vocab.token_bytes(id).empty()) continue;
    entries.push_back({std::string(vocab.token_bytes(id)), id});
    if (vocab.kind() == VocabKind::spm) replace_spm_blanks(entries.back().text);  // as texts have them by then
  }
  // Sorted, a token shares its longest known prefix with the one before it, and its new branch is the last child there.
  std::ranges::sort(entries,
                    [](const Entry& a, const Entry& b) { return std::tie(a.text, a.id) < std::tie(b.text, b.id); });
  std::vector<uint32_t> path;  // nodes along the last token
  std::string_view last;
  for (const auto& [text, id] : entries) {
    if (text == last) continue;  // the lowest id of equal texts
    const auto shared = static_cast<size_t>(std::ranges::mismatch(text, last).in1 - text.begin());
    const uint32_t sibling = shared < path.size() ? path[shared] : 0;
    path.resize(shared);
    for (size_t i = shared; i < text.size(); ++i) {
      const auto node = static_cast<uint32_t>(nodes_.size());
      nodes_.push_back({.byte = text[i]});
      if (i == shared && sibling != 0 && i > 0) {
        nodes_[sibling].next_sibling = node;
      } else if (i == 0) {
        root_[static_cast<unsigned char>(text[0])] = node;
      } else {
        nodes_[path.back()].first_child = node;
      }
      path.push_back(node);
    }
    nodes_[path.back()].id = id;
    nodes_[path.back()].in_user_text = vocab.matches_in_user_text(id);
    last = text;
  }
}

AddedTokens::Match AddedTokens::next(std::string_view text, size_t from, const std::vector<TrustedRange>& trusted,
                                     size_t& i) const {
  for (size_t begin = from; begin < text.size(); ++begin) {
    uint32_t node = root_[static_cast<unsigned char>(text[begin])];
    if (node == 0) continue;
    while (i < trusted.size() && trusted[i].end <= begin) ++i;
    const size_t trusted_end = i < trusted.size() && trusted[i].begin <= begin ? trusted[i].end : begin;
    Match longest;
    for (size_t end = begin + 1; node != 0; ++end) {
      const Node& n = nodes_[node];
      if (n.id >= 0 && (n.in_user_text || end <= trusted_end)) longest = {begin, end, n.id};
      if (end == text.size()) break;
      node = child(node, text[end]);
    }
    if (longest.id >= 0) return longest;
  }
  return {text.size(), text.size(), -1};
}

}  // namespace heddle::text
