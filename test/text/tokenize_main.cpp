// Compares the tokenizer with reference ids, and measures it. Used by test/e2e/test_tokenizers.py; by hand:
//   tokenize compare VOCAB.gguf CASES IDS   ids and round trips of every case; prints the first differences, exit code
//   1 tokenize bench VOCAB.gguf TEXT          MB/s over a text, and the time to build the tokenizer
// CASES and IDS are written by tools/make_tokenizer_goldens.py: per case a byte (1: parse special tokens), a uint32
// length, the bytes; per case a uint32 count and int32 ids.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "model/gguf.h"
#include "text/detokenizer.h"
#include "text/gguf_vocab.h"
#include "text/nfc.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace {

using namespace heddle;
using namespace heddle::text;

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + path);
  return {std::istreambuf_iterator<char>(in), {}};
}

template <class T>
T or_throw(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(*result);
}

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}
  bool done() const { return bytes_.empty(); }
  std::string_view take(size_t n) {
    if (n > bytes_.size()) throw std::runtime_error("file is cut short");
    const std::string_view taken = bytes_.substr(0, n);
    bytes_.remove_prefix(n);
    return taken;
  }
  uint32_t take_u32() {
    uint32_t v;
    std::memcpy(&v, take(4).data(), 4);
    return v;
  }

 private:
  std::string_view bytes_;
};

// Bytes that a byte-level vocabulary has no token for, such as rare control characters; they are dropped, as
// Hugging Face does.
std::string missing_bytes(const Vocab& vocab) {
  std::string missing;
  if (vocab.kind() == VocabKind::spm) return missing;
  std::vector<bool> has(256);
  for (TokenId id = 0; id < vocab.size(); ++id)
    if (vocab.token_bytes(id).size() == 1) has[static_cast<unsigned char>(vocab.token_bytes(id)[0])] = true;
  for (int b = 0; b < 256; ++b)
    if (!has[static_cast<size_t>(b)]) missing += static_cast<char>(b);
  return missing;
}

// What decoding must give back: the text as the tokenizer reads it.
std::string as_read(const Vocab& vocab, std::string_view text, const std::string& missing) {
  std::string read;
  append_utf8_replaced(text, read);
  if (vocab.pre() == "qwen2") read = to_nfc(read);
  if (vocab.kind() == VocabKind::spm) {
    for (size_t at; (at = read.find("\u2581")) != std::string::npos;) read.replace(at, 3, 1, ' ');
    return read;
  }
  std::erase_if(read, [&](char c) { return missing.find(c) != std::string::npos; });
  std::string shown;
  append_utf8_replaced(read, shown);
  return shown;
}

// Spelled out at the start, bos looks like the one that encoding adds, behind which decoding drops a blank.
bool starts_with_bos(const Vocab& vocab, std::string_view text) {
  return vocab.add_space_prefix() && vocab.bos() >= 0 && text.starts_with(vocab.token_bytes(vocab.bos()));
}

int compare(const Tokenizer& tokenizer, const std::string& cases_path, const std::string& ids_path) {
  const std::string cases_bytes = read_file(cases_path), ids_bytes = read_file(ids_path);
  Reader cases(cases_bytes), expected(ids_bytes);
  const Vocab& vocab = tokenizer.vocab();
  const std::string missing = missing_bytes(vocab);
  size_t n_cases = 0, n_bytes = 0, n_ids = 0, n_wrong = 0;
  for (; !cases.done(); ++n_cases) {
    const bool parse_special = cases.take(1)[0] != 0;
    const std::string_view text = cases.take(cases.take_u32());
    std::vector<TokenId> want(expected.take_u32());
    for (TokenId& id : want) id = static_cast<TokenId>(expected.take_u32());
    const std::vector<TokenId> got = tokenizer.encode(text, parse_special);
    n_bytes += text.size();
    n_ids += got.size();
    const std::string back = decode(vocab, got, {.skip_special = false, .at_text_start = true});
    const bool same_text = starts_with_bos(vocab, text) || back == as_read(vocab, text, missing);
    if (got == want && same_text) continue;
    if (++n_wrong > 5) continue;
    const auto at = static_cast<size_t>(std::ranges::mismatch(got, want).in1 - got.begin());
    const auto around = [at](const std::vector<TokenId>& ids) {
      const size_t from = std::min(at < 3 ? 0 : at - 3, ids.size());
      return std::vector<TokenId>(ids.begin() + static_cast<ptrdiff_t>(from),
                                  ids.begin() + static_cast<ptrdiff_t>(std::min(at + 5, ids.size())));
    };
    fmt::print("case {}: parse_special {}, {} bytes, starts {:?}\n", n_cases, parse_special, text.size(),
               text.substr(0, 160));
    if (got != want) fmt::print("  from id {}: want {}, got {}\n", at < 3 ? 0 : at - 3, around(want), around(got));
    if (!same_text) fmt::print("  decodes to {:?}\n", back.substr(0, 160));
  }
  if (!expected.done()) throw std::runtime_error("more ids than cases");
  fmt::print("{} cases, {} bytes, {} ids, {} wrong\n", n_cases, n_bytes, n_ids, n_wrong);
  return n_wrong == 0 ? 0 : 1;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void bench(const VocabData& data, const std::string& path) {
  double build = 1e9;
  for (int i = 0; i < 5; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const auto tokenizer = make_tokenizer(data).value();
    build = std::min(build, seconds_since(start));
  }
  const auto tokenizer = make_tokenizer(data).value();
  const std::string text = read_file(path);
  double best = 1e9;
  size_t n_ids = 0;
  for (int i = 0; i < 5; ++i) {
    const auto start = std::chrono::steady_clock::now();
    n_ids = tokenizer->encode(text, false).size();
    best = std::min(best, seconds_since(start));
  }
  fmt::print("build {:.1f} ms, {:.1f} MB/s ({} bytes, {} ids)\n", build * 1e3,
             static_cast<double>(text.size()) / best / 1e6, text.size(), n_ids);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  try {
    if ((args.size() == 4 && args[0] == "compare") || (args.size() == 3 && args[0] == "bench")) {
      const auto file = or_throw(model::GgufFile::open(args[1]));
      const VocabData data = or_throw(read_vocab(file.metadata()));
      if (args[0] == "compare") return compare(*or_throw(make_tokenizer(data)), args[2], args[3]);
      bench(data, args[2]);
      return 0;
    }
    fmt::print(stderr, "usage: tokenize compare VOCAB.gguf CASES IDS | tokenize bench VOCAB.gguf TEXT\n");
  } catch (const std::exception& e) {
    fmt::print(stderr, "tokenize: {}\n", e.what());
  }
  return 2;
}
