#include "model/gguf.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "model/gguf_builder.h"

namespace heddle::model {
namespace {

constexpr uint32_t kQ8_0 = 8;

GgufBuilder sample() {
  GgufBuilder builder;
  builder.string("general.architecture", "llama")
      .u32("a.u32", 4000000000u)
      .number("a.u8", GgufType::u8, uint8_t{200})
      .number("a.i16", GgufType::i16, int16_t{-3})
      .number("a.u64", GgufType::u64, uint64_t{1} << 40)
      .number("a.i64", GgufType::i64, int64_t{77})
      .number("a.f64", GgufType::f64, 1.5)
      .f32("a.f32", 0.25f)
      .boolean("a.yes", true)
      .boolean("a.no", false)
      .string("a.empty", "")
      .strings("a.words", {"one", "", "three"})
      .numbers<float>("a.floats", GgufType::f32, {1.0f, -2.5f})
      .numbers<int32_t>("a.ints", GgufType::i32, {-1, 5})
      .numbers<uint16_t>("a.shorts", GgufType::u16, {1, 65535});
  builder.f32_tensor("norm", {3})
      .tensor("w", kQ8_0, {64, 5}, std::string(5 * 68, '\x11'))
      .f32_tensor("cube", {2, 3, 4});
  return builder;
}

TEST_CASE("versions 2 and 3 give keys of every type and tensors in the file's order") {
  for (const uint32_t version : {2u, 3u}) {
    GgufBuilder builder = sample();
    builder.version = version;
    const std::string bytes = builder.build();
    const Result<GgufFile> file = GgufFile::parse(as_bytes(bytes), "x.gguf");
    REQUIRE_MESSAGE(file.has_value(), file.error().message);
    CHECK(file->version() == version);
    CHECK(file->path() == "x.gguf");
    const GgufMetadata& metadata = file->metadata();
    CHECK(metadata.size() == 15);
    CHECK(metadata.get_string("general.architecture").value() == "llama");
    CHECK(metadata.get_u32("a.u32").value() == 4000000000u);
    CHECK(metadata.get_u32("a.u8").value() == 200);
    CHECK(metadata.get_u32("a.i64").value() == 77);
    CHECK(metadata.get_f32("a.f32").value() == 0.25f);
    CHECK(metadata.get_bool("a.yes").value() == true);
    CHECK(metadata.get_bool("a.no").value() == false);
    CHECK(metadata.get_string("a.empty").value() == "");
    const GgufStrings words = metadata.get_strings("a.words").value();
    CHECK(words.size() == 3);
    CHECK(std::vector<std::string_view>(words.begin(), words.end()) ==
          std::vector<std::string_view>{"one", "", "three"});
    CHECK(metadata.get_f32s("a.floats").value()[1] == -2.5f);
    CHECK(metadata.get_i32s("a.ints").value()[0] == -1);
    CHECK(metadata.get_u32s("a.shorts").value() == std::vector<uint32_t>{1, 65535});
    CHECK(!metadata.has("a.u3"));

    REQUIRE(file->tensors().size() == 3);
    CHECK(file->tensors()[0].name == "norm");
    const GgufTensor* w = file->find("w");
    REQUIRE(w != nullptr);
    CHECK(w->type == device::QuantType::q8_0);
    CHECK(w->cols() == 64);
    CHECK(w->rows() == 5);
    CHECK(w->data().size() == 5 * 68);
    CHECK(w->place == as_bytes(bytes).data() + builder.at("w:data"));
    const GgufTensor* cube = file->find("cube");
    REQUIRE(cube != nullptr);
    CHECK(cube->rows() == 12);
    CHECK(cube->shape() == "[2, 3, 4]");
    CHECK(read_number<float>(cube->place + 23 * 4) == 23.0f);
    CHECK(file->find("nor") == nullptr);
    const device::RawTensor raw = w->raw();
    CHECK(raw.name == "w");
    CHECK(raw.row(1) == w->place + 68);
  }
}

TEST_CASE("a getter's error names the file, the key, the type found and the type wanted") {
  const std::string bytes = sample().build();
  const GgufFile file = GgufFile::parse(as_bytes(bytes), "x.gguf").value();
  const GgufMetadata& m = file.metadata();
  CHECK(m.get_u32("nope").error().message == "x.gguf: metadata key 'nope': is missing (uint32 expected)");
  CHECK(m.get_u32("a.f32").error().message == "x.gguf: metadata key 'a.f32': has type float32, expected uint32");
  CHECK(m.get_u32("a.i16").error().message == "x.gguf: metadata key 'a.i16': its int16 value does not fit into uint32");
  CHECK(m.get_u32("a.u64").error().message ==
        "x.gguf: metadata key 'a.u64': its uint64 value does not fit into uint32");
  CHECK(m.get_f32("a.f64").error().message == "x.gguf: metadata key 'a.f64': has type float64, expected float32");
  CHECK(m.get_bool("a.u8").error().message == "x.gguf: metadata key 'a.u8': has type uint8, expected bool");
  CHECK(m.get_string("a.words").error().message ==
        "x.gguf: metadata key 'a.words': has type array of string, expected string");
  CHECK(m.get_strings("a.ints").error().message ==
        "x.gguf: metadata key 'a.ints': has type array of int32, expected array of string");
  CHECK(m.get_strings("nope").error().message == "x.gguf: metadata key 'nope': is missing (array of string expected)");
  CHECK(m.get_u32s("a.ints").error().message ==
        "x.gguf: metadata key 'a.ints': its element 0 does not fit into uint32");
  CHECK(m.get_u32s("a.floats").error().message ==
        "x.gguf: metadata key 'a.floats': has type array of float32, expected array of uint32");
}

TEST_CASE("an absent optional key gives its default, a present one of a wrong type an error") {
  const std::string bytes = sample().build();
  const GgufFile file = GgufFile::parse(as_bytes(bytes), "x.gguf").value();
  const GgufMetadata& m = file.metadata();
  CHECK(m.u32_or("nope", 7).value() == 7);
  CHECK(m.u32_or("a.u8", 7).value() == 200);
  CHECK(!m.u32_or("a.f32", 7).has_value());
  CHECK(m.f32_or("nope", 0.5f).value() == 0.5f);
  CHECK(!m.f32_or("a.u8", 0.5f).has_value());
  CHECK(m.bool_or("nope", true).value() == true);
  CHECK(!m.bool_or("a.u8", true).has_value());
  CHECK(m.string_or("nope", "d").value() == "d");
  CHECK(!m.string_or("a.u8", "d").has_value());
}

TEST_CASE("tensor data follows general.alignment") {
  for (const uint32_t alignment : {8u, 64u, 4096u}) {
    GgufBuilder builder = sample();
    builder.alignment = alignment;
    builder.u32("general.alignment", alignment);
    const std::string bytes = builder.build();
    const Result<GgufFile> file = GgufFile::parse(as_bytes(bytes), "x.gguf");
    REQUIRE_MESSAGE(file.has_value(), file.error().message);
    CHECK(file->find("cube")->place == as_bytes(bytes).data() + builder.at("cube:data"));
  }
}

TEST_CASE("a file without tensors, the first part of some split models, opens") {
  GgufBuilder builder;
  builder.string("general.architecture", "llama");
  const std::string bytes = builder.build();
  CHECK(GgufFile::parse(as_bytes(bytes), "x.gguf").value().tensors().empty());
}

TEST_CASE("text of a file is quoted on one line, and shortened") {
  CHECK(quoted("plain") == "'plain'");
  CHECK(quoted("a\nb'\\\x01\xff") == "'a\\x0ab\\x27\\x5c\\x01\\xff'");
  CHECK(quoted(std::string(200, 'x')) == "'" + std::string(80, 'x') + "...'");
}

}  // namespace
}  // namespace heddle::model
