// Files that lie: each starts as the same valid small file, one field is spoiled, and the one-line answer must name
// that field, at once and without taking more memory than twice the file.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <random>

#include "model/allocation_meter.h"
#include "model/gguf.h"
#include "model/gguf_builder.h"

namespace heddle::model {
namespace {

constexpr uint32_t kF32 = 0, kQ8_0 = 8;
constexpr uint64_t kHuge = uint64_t{1} << 63;

GgufBuilder valid() {
  GgufBuilder builder;
  builder.string("general.architecture", "llama")
      .u32("general.alignment", 32)
      .boolean("flag", true)
      .f32("number", 1.0f)
      .strings("tokens", {"a", "bc", ""})
      .numbers<float>("scores", GgufType::f32, {0.5f, 1.5f})
      .numbers<uint8_t>("flags", GgufType::boolean, {0, 1});
  builder.f32_tensor("one", {8}).tensor("two", kQ8_0, {64, 2}, std::string(136, '\0')).f32_tensor("three", {4, 2});
  return builder;
}

struct Outcome {
  std::string message;  // empty: it opened
  Allocated allocated;
  double seconds;
};

Outcome open_bytes(const std::string& bytes) {
  const auto begin = std::chrono::steady_clock::now();
  start_metering();
  Result<GgufFile> file = GgufFile::parse(as_bytes(bytes), "x.gguf");
  const Allocated allocated = stop_metering();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  return {file ? std::string() : file.error().message, allocated, took.count()};
}

constexpr size_t kMessageBytes = 16384;  // what error texts may cost

void check_bounds(const Outcome& outcome, size_t file_size) {
  CHECK(outcome.seconds < 1.0);
  CHECK(outcome.allocated.total <= 2 * file_size + kMessageBytes);
  CHECK(std::count(outcome.message.begin(), outcome.message.end(), '\n') == 0);
  CHECK(outcome.message.size() < 400);
}

struct Case {
  std::string name;
  std::function<std::string()> make;
  std::string message;
};

// The valid file with one field overwritten.
template <class T>
std::function<std::string()> with(std::string label, T value, size_t delta = 0) {
  return [=] {
    GgufBuilder builder = valid();
    std::string bytes = builder.build();
    patch(bytes, builder.at(label) + delta, value);
    return bytes;
  };
}

std::function<std::string()> built(std::function<void(GgufBuilder&)> change) {
  return [=] {
    GgufBuilder builder = valid();
    change(builder);
    return builder.build();
  };
}

std::function<std::string()> cut_at(std::string label, size_t delta = 0) {
  return [=] {
    GgufBuilder builder = valid();
    const std::string bytes = builder.build();
    return bytes.substr(0, builder.at(label) + delta);
  };
}

std::string nested_array() {
  return GgufBuilder::array_head(GgufType::array, 1) + GgufBuilder::array_head(GgufType::u8, 1) + "x";
}

const std::vector<Case>& cases() {
  static const std::vector<Case> table = {
      {"empty file", [] { return std::string(); }, "x.gguf: is not a GGUF file: its magic is '', expected 'GGUF'"},
      {"other magic", with("magic", uint32_t{0x6c6d6767}),
       "x.gguf: is not a GGUF file: its magic is 'ggml', expected 'GGUF'"},
      {"LFS pointer", [] { return std::string("version https://git-lfs.github.com/spec/v1\noid sha256:00\n"); },
       "x.gguf: is a Git LFS pointer, not the file itself (git lfs pull fetches it)"},
      {"magic swapped", with("magic", uint32_t{0x47475546}),
       "x.gguf: is a big-endian GGUF file; only little-endian files are supported"},
      {"big-endian version", with("version", uint32_t{0x03000000}),
       "x.gguf: is a big-endian GGUF file (version 0x3000000); only little-endian files are supported"},
      {"version 0", with("version", uint32_t{0}), "x.gguf: has GGUF version 0; versions 2 and 3 are supported"},
      {"version 1", with("version", uint32_t{1}), "x.gguf: has GGUF version 1; versions 2 and 3 are supported"},
      {"version 4", with("version", uint32_t{4}), "x.gguf: has GGUF version 4; versions 2 and 3 are supported"},
      {"n_tensors 2^63", with("tensor_count", kHuge),
       "x.gguf: the header's tensor_count says 9223372036854775808 tensors, more than "},
      {"n_tensors 2^64-1", with("tensor_count", ~uint64_t{0}), "x.gguf: the header's tensor_count says "},
      {"n_kv 2^63", with("kv_count", kHuge),
       "x.gguf: the header's metadata_kv_count says 9223372036854775808 keys, more than "},
      {"one key too many", with("kv_count", uint64_t{8}), "x.gguf: tensor info 0 has an empty name"},
      {"one tensor too many", with("tensor_count", uint64_t{4}), "x.gguf: tensor info 3 has an empty name"},

      {"key length 2^63", with("flag:key", kHuge), "x.gguf: metadata key 2 of 7 runs past the end of the file"},
      {"key length 2^64-1", with("flag:key", ~uint64_t{0}),
       "x.gguf: metadata key 2 of 7 runs past the end of the file"},
      {"empty key", built([](GgufBuilder& b) { b.u32("", 1); }), "x.gguf: metadata key 7 of 8 is empty"},
      {"key too long", built([](GgufBuilder& b) { b.u32(std::string(70000, 'k'), 1); }),
       "...' has 70000 bytes; the format allows 65535"},
      {"duplicate key", built([](GgufBuilder& b) { b.u32("number", 3); }),
       "x.gguf: metadata key 'number' appears twice"},
      {"unknown value type", with("number:type", uint32_t{13}),
       "x.gguf: metadata key 'number': has the unknown value type 13"},
      {"string length 2^63", with("general.architecture:value", kHuge),
       "x.gguf: metadata key 'general.architecture': its string runs past the end of the file"},
      {"bool of 2", with("flag:value", uint8_t{2}), "x.gguf: metadata key 'flag': is a bool that is neither 0 nor 1"},
      {"bool array of 7", with("flags:value", uint8_t{7}, 13),
       "x.gguf: metadata key 'flags': element 1 is a bool that is neither 0 nor 1"},
      {"array of unknown type", with("scores:value", uint32_t{99}),
       "x.gguf: metadata key 'scores': is an array of the unknown value type 99"},
      {"array count 2^63", with("scores:value", kHuge, 4),
       "x.gguf: metadata key 'scores': is an array of 9223372036854775808 float32 values, but only "},
      {"array count 2^62, whose bytes wrap to 0", with("scores:value", uint64_t{1} << 62, 4),
       "x.gguf: metadata key 'scores': is an array of 4611686018427387904 float32 values, but only "},
      {"string array count 2^63", with("tokens:value", kHuge, 4),
       "x.gguf: metadata key 'tokens': is an array of 9223372036854775808 string values, but only "},
      {"string in array of 2^63 bytes", with("tokens:value", kHuge, 12),
       "x.gguf: metadata key 'tokens': string 0 of 3 runs past the end of the file"},
      {"nested array", built([](GgufBuilder& b) { b.pair("nest", GgufType::array, nested_array()); }),
       "x.gguf: metadata key 'nest': is a nested array, which is not supported"},

      {"alignment 0", with("general.alignment:value", uint32_t{0}),
       "x.gguf: metadata key 'general.alignment': is 0, expected a power of two of at least 8"},
      {"alignment 3", with("general.alignment:value", uint32_t{3}),
       "x.gguf: metadata key 'general.alignment': is 3, expected a power of two of at least 8"},
      {"alignment 4", with("general.alignment:value", uint32_t{4}),
       "x.gguf: metadata key 'general.alignment': is 4, expected a power of two of at least 8"},
      {"alignment 2^31", with("general.alignment:value", uint32_t{1} << 31),
       "x.gguf: tensor 'one': its 32 bytes at offset 0 run past"},
      {"alignment as a string",
       built([](GgufBuilder& b) { b.without("general.alignment").string("general.alignment", "32"); }),
       "x.gguf: metadata key 'general.alignment': has type string, expected uint32"},
      {"alignment as uint64", built([](GgufBuilder& b) {
         b.without("general.alignment").number("general.alignment", GgufType::u64, uint64_t{32});
       }),
       "x.gguf: metadata key 'general.alignment': has type uint64, expected uint32"},

      {"tensor name of 2^63 bytes", with("two:name", kHuge), "x.gguf: the file ends inside tensor info 1 (name)"},
      {"empty tensor name", built([](GgufBuilder& b) { b.f32_tensor("", {1}); }),
       "x.gguf: tensor info 3 has an empty name"},
      {"tensor name too long", built([](GgufBuilder& b) { b.f32_tensor(std::string(256, 'n'), {1}); }),
       "...': its name has 256 bytes, at most 255"},
      {"duplicate tensor", built([](GgufBuilder& b) { b.f32_tensor("one", {8}); }),
       "x.gguf: tensor 'one' appears twice"},
      {"n_dims 0", with("two:n_dims", uint32_t{0}), "x.gguf: tensor 'two': n_dims is 0, expected 1 to 4"},
      {"n_dims 5", with("two:n_dims", uint32_t{5}), "x.gguf: tensor 'two': n_dims is 5, expected 1 to 4"},
      {"n_dims 10^6", with("two:n_dims", uint32_t{1000000}),
       "x.gguf: tensor 'two': n_dims is 1000000, expected 1 to 4"},
      {"dim 0 is 0", with("two:dims", uint64_t{0}), "x.gguf: tensor 'two': dimension 0 is 0"},
      {"dim 1 is 0", with("two:dims", uint64_t{0}, 8), "x.gguf: tensor 'two': dimension 1 is 0"},
      {"dim of 2^63", with("two:dims", kHuge),
       "x.gguf: tensor 'two': dimension 0 is 9223372036854775808, at most 4294967295"},
      {"dims whose product wraps to 0", built([](GgufBuilder& b) {
         b.tensor("wrap", kF32, {1u << 16, 1u << 16, 1u << 16, 1u << 16}, "");
       }),
       "x.gguf: tensor 'wrap': the product of its dimensions 1 to 2 is over 4294967295"},
      {"dims whose bytes wrap", built([](GgufBuilder& b) {
         b.tensor("wrap", kF32, {4294967295u, 4294967295u}, "");
       }),
       "x.gguf: tensor 'wrap': its size in bytes does not fit into 63 bits"},
      {"row that is no multiple of the block", with("two:dims", uint64_t{40}),
       "x.gguf: tensor 'two': dimension 0 is 40, not a multiple of 32 as Q8_0 needs"},
      {"type IQ4_NL", with("two:type", uint32_t{20}),
       "x.gguf: tensor 'two': has type IQ4_NL, which heddle does not support; supported: F32, F16, BF16, Q4_0, Q4_1, "
       "Q5_0, "
       "Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K"},
      {"type MXFP4", with("two:type", uint32_t{39}),
       "x.gguf: tensor 'two': has type MXFP4, which heddle does not support"},
      {"type NVFP4", with("two:type", uint32_t{40}),
       "x.gguf: tensor 'two': has type NVFP4, which heddle does not support"},
      {"type TQ1_0", with("two:type", uint32_t{34}),
       "x.gguf: tensor 'two': has type TQ1_0, which heddle does not support"},
      {"type I32", with("two:type", uint32_t{26}), "x.gguf: tensor 'two': has type I32, which heddle does not support"},
      {"withdrawn type Q4_2", with("two:type", uint32_t{4}),
       "x.gguf: tensor 'two': has type Q4_2, which heddle does not support"},
      {"type 99", with("two:type", uint32_t{99}),
       "x.gguf: tensor 'two': has type number 99, which heddle does not support"},
      {"type 2^32-1", with("two:type", ~uint32_t{0}), "x.gguf: tensor 'two': has type number 4294967295, which"},
      {"offset past the end", with("two:offset", uint64_t{1} << 20),
       "x.gguf: tensor 'two': its 136 bytes at offset 1048576 run past the end of the file"},
      {"offset whose end wraps", with("two:offset", ~uint64_t{31}),
       "x.gguf: tensor 'two': its 136 bytes at offset 18446744073709551584 run past the end of the file"},
      {"offset unaligned", with("two:offset", uint64_t{33}),
       "x.gguf: tensor 'two': offset 33 is not a multiple of the alignment 32"},
      {"offsets overlap", with("three:offset", uint64_t{64}),
       "x.gguf: tensors 'two' and 'three' overlap (offsets 32 and 64)"},
      {"offsets equal", with("three:offset", uint64_t{0}), "' overlap (offsets 0 and 0)"},
      {"a name with a line break", built([](GgufBuilder& b) { b.tensor("bad\nname", 20, {32}, ""); }),
       "x.gguf: tensor 'bad\\x0aname': has type IQ4_NL"},

      {"cut in the magic", cut_at("magic", 3), "x.gguf: is not a GGUF file: its magic is 'GGU', expected 'GGUF'"},
      {"cut in the version", cut_at("version", 2), "x.gguf: the file ends inside the header (version)"},
      {"cut in tensor_count", cut_at("tensor_count", 7), "x.gguf: the file ends inside the header (tensor_count)"},
      {"cut in kv_count", cut_at("kv_count", 7), "x.gguf: the file ends inside the header (metadata_kv_count)"},
      {"cut before the keys", cut_at("general.architecture:key"), "x.gguf: the header's metadata_kv_count says 7 keys"},
      {"cut in a key", cut_at("flags:key", 2), "x.gguf: metadata key 6 of 7 runs past the end of the file"},
      {"cut in a type", cut_at("flags:type", 2), "x.gguf: metadata key 'flags': the file ends inside this key's type"},
      {"cut in an array header", cut_at("flags:value", 6),
       "x.gguf: metadata key 'flags': the file ends inside this key's array header"},
      {"cut in an array", cut_at("flags:value", 13),
       "x.gguf: metadata key 'flags': is an array of 2 bool values, but only 1 bytes of the file are left"},
      {"cut before the tensor infos", cut_at("one:name"),
       "x.gguf: the header's tensor_count says 3 tensors, more than 0 bytes can hold"},
      {"cut in a tensor's name", cut_at("three:name", 10), "x.gguf: the"},
      {"cut in a tensor's n_dims",
       [] {
         GgufBuilder builder = valid();
         builder.f32_tensor("n", {1});
         const std::string bytes = builder.build();
         return bytes.substr(0, builder.at("n:n_dims") + 2);
       },
       "x.gguf: the file ends inside tensor info 3 (n_dims)"},
      {"cut before the data", cut_at("infos_end"),
       "x.gguf: tensor 'one': its 32 bytes at offset 0 run past the end of the file (the data section has 0)"},
      {"cut in the data", cut_at("three:data", 31),
       "x.gguf: tensor 'three': its 32 bytes at offset 192 run past the end of the file (the data section has 223)"},
  };
  return table;
}

TEST_CASE("the file that the cases spoil is valid") { CHECK(open_bytes(valid().build()).message == ""); }

TEST_CASE("each hostile file is refused with one line that names the field, at once and in bounded memory") {
  for (const Case& c : cases()) {
    CAPTURE(c.name);
    const std::string bytes = c.make();
    const Outcome outcome = open_bytes(bytes);
    CAPTURE(outcome.message);
    CHECK(outcome.message.find(c.message) != std::string::npos);
    check_bounds(outcome, bytes.size());
  }
}

TEST_CASE("a file cut anywhere is refused in one line") {
  const std::string bytes = valid().build();
  for (size_t size = 0; size < bytes.size(); ++size) {
    // An exact copy on the heap, so that a sanitizer sees a read past its end.
    const std::vector<char> cut(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
    const Result<GgufFile> file = GgufFile::parse(std::as_bytes(std::span(cut)), "x.gguf");
    REQUIRE(!file.has_value());
    CHECK(file.error().message.starts_with("x.gguf: "));
    CHECK(file.error().message.find('\n') == std::string::npos);
  }
}

TEST_CASE("any byte may be wrong: the file opens with everything inside its bytes, or is refused in one line") {
  const std::string original = valid().build();
  const uint32_t seed = 11;
  CAPTURE(seed);
  std::mt19937 random(seed);
  size_t opened = 0;
  for (int round = 0; round < 60'000; ++round) {
    std::vector<char> bytes(original.begin(), original.end());
    for (auto n = random() % 3 + 1; n > 0; --n) {
      char& byte = bytes[random() % bytes.size()];
      byte = static_cast<char>(random() % 4 == 0 ? random() : static_cast<uint8_t>(byte) ^ (1u << random() % 8));
    }
    const std::span<const std::byte> view = std::as_bytes(std::span(bytes));
    const Result<GgufFile> file = GgufFile::parse(view, "x.gguf");
    if (!file) {
      REQUIRE(file.error().message.find('\n') == std::string::npos);
      continue;
    }
    ++opened;
    for (const GgufTensor& tensor : file->tensors()) {
      REQUIRE(tensor.place >= view.data());
      REQUIRE(tensor.data().size() <= static_cast<size_t>(view.data() + view.size() - tensor.place));
    }
  }
  CHECK(opened > 1000);
}

TEST_CASE("a file packed with the smallest keys and tensors costs at most twice its size") {
  GgufBuilder keys;
  for (uint32_t i = 0; i < 60'000; ++i) {
    std::string key = GgufBuilder::bytes_of(i).substr(0, 2);
    if (i >= 256) keys.number(key, GgufType::u8, uint8_t{1});
  }
  const std::string key_file = keys.build();
  const Outcome of_keys = open_bytes(key_file);
  CHECK(of_keys.message == "");
  check_bounds(of_keys, key_file.size());

  GgufBuilder tensors;
  tensors.u32("general.alignment", 8);
  tensors.alignment = 8;
  for (uint32_t i = 256; i < 60'000; ++i) {
    tensors.tensor(GgufBuilder::bytes_of(i).substr(0, 2), 1, {1}, "\x01\x02");
  }
  const std::string tensor_file = tensors.build();
  const Outcome of_tensors = open_bytes(tensor_file);
  CHECK(of_tensors.message == "");
  check_bounds(of_tensors, tensor_file.size());

  // Counts that lie as far as the bound lets them.
  std::string lying = key_file;
  patch(lying, keys.at("tensor_count"), uint64_t{1'000});
  check_bounds(open_bytes(lying), lying.size());
}

TEST_CASE("a string array that fills the file is walked in time") {
  GgufBuilder builder;
  builder.strings("tokens", std::vector<std::string>(2'000'000));
  const std::string bytes = builder.build();
  const Outcome outcome = open_bytes(bytes);
  CHECK(outcome.message == "");
  check_bounds(outcome, bytes.size());
}

}  // namespace
}  // namespace heddle::model
