#include "text/tokenizer.h"

#include <fmt/format.h>

#include <array>
#include <string>

#include "text/bpe_tokenizer.h"
#include "text/spm_blank.h"
#include "text/spm_tokenizer.h"
#include "text/utf8.h"

namespace heddle::text {

namespace {

// The spans as one valid text; copied only where they do not already lie in one piece.
struct JoinedText {
  std::string_view text;
  std::vector<TrustedRange> trusted;  // ascending, maximal
  std::string storage;

  void trust(size_t begin, size_t end) {
    if (begin == end) return;
    if (!trusted.empty() && trusted.back().end == begin) {
      trusted.back().end = end;
    } else {
      trusted.push_back({begin, end});
    }
  }
};

bool is_one_piece(std::span<const EncodeSpan> spans) {
  for (size_t i = 1; i < spans.size(); ++i)
    if (spans[i - 1].text.data() + spans[i - 1].text.size() != spans[i].text.data()) return false;
  return true;
}

// With `blanks`, U+2581 becomes a blank.
void join(std::span<const EncodeSpan> spans, bool blanks, JoinedText& joined) {
  bool as_is = is_one_piece(spans);
  size_t bytes = 0;
  for (const EncodeSpan& span : spans) {
    as_is = as_is && utf8_valid_prefix(span.text) == span.text.size() && !(blanks && has_spm_blank(span.text));
    bytes += span.text.size();
  }
  if (as_is) {
    if (!spans.empty()) joined.text = {spans.front().text.data(), bytes};
    size_t at = 0;
    for (const EncodeSpan& span : spans) {
      if (span.parse_special) joined.trust(at, at + span.text.size());
      at += span.text.size();
    }
    return;
  }
  joined.storage.reserve(bytes);
  for (const EncodeSpan& span : spans) {
    const size_t begin = joined.storage.size();
    append_utf8_replaced(span.text, joined.storage);
    if (blanks) replace_spm_blanks(joined.storage, begin);
    if (span.parse_special) joined.trust(begin, joined.storage.size());
  }
  joined.text = joined.storage;
}

// The space in front belongs to nobody: no control token can contain it.
void prepend_space(JoinedText& joined) {
  std::string text;
  text.reserve(joined.text.size() + 1);
  text += ' ';
  text += joined.text;
  joined.storage = std::move(text);
  joined.text = joined.storage;
  for (TrustedRange& range : joined.trusted) ++range.begin, ++range.end;
}

}  // namespace

Tokenizer::Tokenizer(Vocab vocab) : vocab_(std::move(vocab)), added_(vocab_) {}

std::vector<TokenId> Tokenizer::encode(std::string_view text, bool parse_special, EncodeOptions options,
                                       EncodeCounters* counters) const {
  const std::array<EncodeSpan, 1> span{{{text, parse_special}}};
  return encode(span, options, counters);
}

std::vector<TokenId> Tokenizer::encode(std::span<const EncodeSpan> spans, EncodeOptions options,
                                       EncodeCounters* counters) const {
  JoinedText joined;
  join(spans, vocab_.kind() == VocabKind::spm, joined);
  EncodeCounters local;
  std::vector<TokenId> ids;
  ids.reserve(joined.text.size() / 4 + 8);
  if (options.add_bos && vocab_.bos() >= 0) ids.push_back(vocab_.bos());

  size_t range = 0;
  AddedTokens::Match match = added_.next(joined.text, 0, joined.trusted, range);
  // SentencePiece models were trained on words with a blank in front. It stands at the start of a text only: not where
  // a control token comes first, nor after one inside a text, where it would be a blank too many.
  if (vocab_.add_space_prefix() && !joined.text.empty() && (match.begin > 0 || !vocab_.is_special(match.id))) {
    prepend_space(joined);
    range = 0;
    match = added_.next(joined.text, 0, joined.trusted, range);
  }
  for (size_t from = 0;;) {
    if (match.begin > from) encode_plain(joined.text.substr(from, match.begin - from), ids, local);
    if (match.id < 0) break;
    ids.push_back(match.id);
    from = match.end;
    match = added_.next(joined.text, from, joined.trusted, range);
  }
  if (options.add_eos && vocab_.eos() >= 0) ids.push_back(vocab_.eos());
  if (counters != nullptr) counters->merge_steps += local.merge_steps;
  return ids;
}

Result<std::unique_ptr<const Tokenizer>> make_tokenizer(const VocabData& data) {
  auto vocab = Vocab::create(data);
  if (!vocab) return tl::unexpected(std::move(vocab.error()));
  if (vocab->kind() == VocabKind::spm) return SpmTokenizer::create(std::move(*vocab));
  return BpeTokenizer::create(std::move(*vocab), data.merges);
}

}  // namespace heddle::text
