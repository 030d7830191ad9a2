// Runs a fuzz entry without libFuzzer: first every file of the corpus, then mutations of them for a given time. Prints
// its seed; a crash leaves the input in crash-NAME. usage: fuzz_X [--seconds N] [--seed N] [FILE|FOLDER...]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
extern "C" void __sanitizer_set_death_callback(void (*callback)()) __attribute__((weak));

namespace {

using Bytes = std::vector<uint8_t>;

constexpr size_t kMaxInput = 64 * 1024;
Bytes g_current;
std::string g_name;

void save_current() {
  std::ofstream("crash-" + g_name, std::ios::binary)
      .write(reinterpret_cast<const char*>(g_current.data()), static_cast<std::streamsize>(g_current.size()));
  std::fprintf(stderr, "the input is in crash-%s\n", g_name.c_str());
}

void on_signal(int signal) {
  save_current();
  std::_Exit(128 + signal);
}

void run_one(Bytes input) {
  g_current = std::move(input);
  LLVMFuzzerTestOneInput(g_current.data(), g_current.size());
}

class Mutator {
 public:
  Mutator(std::vector<Bytes> corpus, uint64_t seed) : corpus_(std::move(corpus)), random_(seed) {
    if (corpus_.empty()) corpus_.push_back({'a'});
  }

  Bytes next() {
    Bytes bytes = corpus_[below(corpus_.size())];
    for (size_t n = 1 + below(6); n > 0; --n) mutate(bytes);
    if (bytes.size() > kMaxInput) bytes.resize(kMaxInput);
    return bytes;
  }

 private:
  size_t below(size_t n) { return n == 0 ? 0 : random_() % n; }

  void mutate(Bytes& bytes) {
    static constexpr uint64_t kNumbers[] = {0,
                                            1,
                                            2,
                                            3,
                                            0x7F,
                                            0x80,
                                            0xFF,
                                            0x7FFF,
                                            0xFFFF,
                                            0x7FFFFFFF,
                                            0x80000000,
                                            0xFFFFFFFF,
                                            0x7FFFFFFFFFFFFFFF,
                                            0x8000000000000000,
                                            UINT64_MAX};
    if (bytes.empty()) bytes.push_back(static_cast<uint8_t>(random_()));
    const size_t at = below(bytes.size());
    switch (below(8)) {
      case 0:
        bytes[at] = static_cast<uint8_t>(bytes[at] ^ (1u << below(8)));
        break;
      case 1:
        bytes[at] = static_cast<uint8_t>(random_());
        break;
      case 2:
        bytes.erase(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                    bytes.begin() + static_cast<std::ptrdiff_t>(at + std::min(bytes.size() - at, 1 + below(16))));
        break;
      case 3:
        bytes.resize(at);
        break;
      case 4: {  // a number that tests a bound, in one of the widths of a file format
        const uint64_t number = kNumbers[below(std::size(kNumbers))];
        const size_t width = size_t{1} << below(4);
        for (size_t i = 0; i < width && at + i < bytes.size(); ++i)
          bytes[at + i] = static_cast<uint8_t>(number >> (8 * i));
        break;
      }
      case 5: {  // a piece of another input
        const Bytes& other = corpus_[below(corpus_.size())];
        const size_t from = below(other.size());
        const size_t length = std::min(other.size() - from, 1 + below(32));
        bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at), other.begin() + static_cast<std::ptrdiff_t>(from),
                     other.begin() + static_cast<std::ptrdiff_t>(from + length));
        break;
      }
      case 6: {  // the same piece many times: nesting and long runs
        const Bytes piece(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                          bytes.begin() + static_cast<std::ptrdiff_t>(at + std::min(bytes.size() - at, 1 + below(8))));
        for (size_t n = below(64); n > 0 && bytes.size() < kMaxInput; --n)
          bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at), piece.begin(), piece.end());
        break;
      }
      default:
        bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                     static_cast<uint8_t>("{}[]()\"'\\:,%-<|>\n\0\xFF"[below(20)]));
        break;
    }
  }

  std::vector<Bytes> corpus_;
  std::mt19937_64 random_;
};

Bytes read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return Bytes(std::istreambuf_iterator<char>(file), {});
}

}  // namespace

int main(int argc, char** argv) {
  double seconds = 0;
  uint64_t seed = std::random_device{}();
  std::vector<std::filesystem::path> files;
  g_name = std::filesystem::path(argv[0]).filename().string();
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--seconds" && i + 1 < argc)
      seconds = std::atof(argv[++i]);
    else if (argument == "--seed" && i + 1 < argc)
      seed = std::strtoull(argv[++i], nullptr, 10);
    else if (std::filesystem::is_directory(argument)) {
      for (const auto& entry : std::filesystem::recursive_directory_iterator(argument)) {
        if (entry.is_regular_file()) files.push_back(entry.path());
      }
    } else if (std::filesystem::exists(argument)) {
      files.emplace_back(argument);
    } else {
      std::fprintf(stderr, "%s: no such file: %s\n", argv[0], argument.c_str());
      return 1;
    }
  }
  std::sort(files.begin(), files.end());
  if (__sanitizer_set_death_callback != nullptr)
    __sanitizer_set_death_callback(save_current);
  else
    for (int signal : {SIGSEGV, SIGABRT, SIGFPE, SIGILL, SIGBUS}) std::signal(signal, on_signal);
  std::vector<Bytes> corpus;
  for (const auto& file : files) {
    corpus.push_back(read_file(file));
    run_one(corpus.back());
  }
  std::fprintf(stderr, "%s: %zu inputs of the corpus passed; mutating for %.0f s, seed %llu\n", g_name.c_str(),
               corpus.size(), seconds, static_cast<unsigned long long>(seed));
  Mutator mutator(std::move(corpus), seed);
  uint64_t runs = 0;
  const auto start = std::chrono::steady_clock::now();
  while (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() < seconds) {
    for (int i = 0; i < 16; ++i) run_one(mutator.next());
    runs += 16;
  }
  std::fprintf(stderr, "%s: %llu mutations passed\n", g_name.c_str(), static_cast<unsigned long long>(runs));
  return 0;
}
