#include "model/gguf_set.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "model/gguf_builder.h"

namespace heddle::model {
namespace {

// A directory of its own, gone with the test.
class Folder {
 public:
  Folder() : path_(std::filesystem::temp_directory_path() / fmt::format("heddle-split-{}", getpid())) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directory(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string part(uint32_t number, uint32_t count) const {
    return (path_ / fmt::format("m-{:05}-of-{:05}.gguf", number, count)).string();
  }
  std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

void write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
  REQUIRE(std::filesystem::file_size(path) == bytes.size());
}

// Part `number` (from 0) of `count`, as llama.cpp's gguf-split types the keys.
GgufBuilder part(uint16_t number, uint16_t count, int32_t n_tensors) {
  GgufBuilder builder;
  if (number == 0) builder.string("general.architecture", "llama");
  builder.number("split.no", GgufType::u16, number)
      .number("split.count", GgufType::u16, count)
      .number("split.tensors.count", GgufType::i32, n_tensors);
  return builder;
}

// Three parts: metadata only, {a, b}, {c}.
void write_model(const Folder& folder) {
  write(folder.part(1, 3), part(0, 3, 3).build());
  write(folder.part(2, 3), part(1, 3, 3).f32_tensor("a", {4}).f32_tensor("b", {2, 2}).build());
  write(folder.part(3, 3), part(2, 3, 3).f32_tensor("c", {8}).build());
}

std::string error_of(const std::string& path) {
  const Result<GgufSet> set = GgufSet::open(path);
  return set ? "" : set.error().message;
}

TEST_CASE("a split model opens by any of its parts, with the first part's metadata and all tensors") {
  const Folder folder;
  write_model(folder);
  for (uint32_t named = 1; named <= 3; ++named) {
    const Result<GgufSet> set = GgufSet::open(folder.part(named, 3));
    REQUIRE_MESSAGE(set.has_value(), set.error().message);
    CHECK(set->parts().size() == 3);
    CHECK(set->metadata().get_string("general.architecture").value() == "llama");
    CHECK(set->n_tensors() == 3);
    CHECK(set->tensor_bytes() == 64);
    std::string names;
    set->each_tensor([&](const GgufTensor& tensor) { names += tensor.name; });
    CHECK(names == "abc");
    CHECK(read_number<float>(set->find("c")->place + 28) == 7.0f);
    CHECK(set->find("d") == nullptr);
    set->drop_pages(*set->find("c"));
    CHECK(read_number<float>(set->find("c")->place + 28) == 7.0f);
  }
}

TEST_CASE("a whole model opens as a set of one") {
  const Folder folder;
  GgufBuilder builder;
  builder.string("general.architecture", "llama").f32_tensor("a", {4});
  write(folder.file("m.gguf"), builder.build());
  const Result<GgufSet> set = GgufSet::open(folder.file("m.gguf"));
  REQUIRE_MESSAGE(set.has_value(), set.error().message);
  CHECK(set->parts().size() == 1);
  CHECK(set->find("a") != nullptr);
}

TEST_CASE("a missing part is an error that names it") {
  const Folder folder;
  write_model(folder);
  std::filesystem::remove(folder.part(2, 3));
  CHECK(error_of(folder.part(1, 3)) ==
        folder.part(2, 3) + ": No such file or directory (part 2 of 3 of a split model)");
  CHECK(error_of(folder.part(2, 3)) == folder.part(2, 3) + ": No such file or directory");
}

TEST_CASE("parts that disagree are refused, naming the key and the file") {
  const Folder folder;
  write_model(folder);
  write(folder.part(3, 3), part(1, 3, 3).f32_tensor("c", {8}).build());
  CHECK(error_of(folder.part(1, 3)) == folder.part(3, 3) + ": metadata key 'split.no': is 1, expected 2");
  write(folder.part(3, 3), part(2, 4, 3).f32_tensor("c", {8}).build());
  CHECK(error_of(folder.part(1, 3)) == folder.part(3, 3) + ": metadata key 'split.count': is 4, expected 3");
  write(folder.part(3, 3), GgufBuilder().f32_tensor("c", {8}).build());
  CHECK(error_of(folder.part(1, 3)) ==
        folder.part(3, 3) + ": metadata key 'split.count': is missing (uint32 expected)");
  write(folder.part(3, 3), part(2, 3, 3).f32_tensor("c", {8}).f32_tensor("d", {8}).build());
  CHECK(error_of(folder.part(1, 3)) ==
        folder.part(1, 3) + ": metadata key 'split.tensors.count': is 3, but the 3 parts hold 4 tensors");
  write(folder.part(3, 3), part(2, 3, 3).f32_tensor("b", {8}).build());
  CHECK(error_of(folder.part(1, 3)) == folder.part(3, 3) + ": tensor 'b' appears in " + folder.part(2, 3) + " too");
}

TEST_CASE("a part under a name that does not tell the others' is refused, and so is a whole model named as a part") {
  const Folder folder;
  write(folder.file("renamed.gguf"), part(0, 3, 3).build());
  CHECK(
      error_of(folder.file("renamed.gguf")) ==
      folder.file("renamed.gguf") +
          ": metadata key 'split.count': is 3: the file must be named like NAME-00001-of-00003.gguf to find the other "
          "parts");
  write(folder.part(1, 2), GgufBuilder().f32_tensor("a", {1}).build());
  CHECK(error_of(folder.part(1, 2)) ==
        folder.part(1, 2) +
            ": metadata key 'split.count': says that this file is a whole model, but it is named as part 1 of 2");
  write(folder.part(4, 3), part(0, 3, 3).build());
  CHECK(error_of(folder.part(4, 3)).find("must be named like") != std::string::npos);
}

TEST_CASE("a single part of a split model cannot stand for the whole") {
  const std::string bytes = part(0, 3, 3).build();
  std::vector<GgufFile> parts;
  parts.push_back(GgufFile::parse(as_bytes(bytes), "x.gguf").value());
  CHECK(GgufSet::join(std::move(parts)).error().message ==
        "x.gguf: metadata key 'split.count': is 3, but this is the only part");
}

TEST_CASE("a part that is cut is refused with its name") {
  const Folder folder;
  write_model(folder);
  const std::string bytes = part(2, 3, 3).f32_tensor("c", {8}).build();
  write(folder.part(3, 3), bytes.substr(0, bytes.size() - 1));
  CHECK(error_of(folder.part(1, 3)).starts_with(folder.part(3, 3) + ": tensor 'c': its 32 bytes at offset 0 run past"));
}

TEST_CASE("a path that is no file is one line") {
  CHECK(error_of("/nowhere/m.gguf") == "/nowhere/m.gguf: No such file or directory");
  CHECK(error_of("/tmp") == "/tmp: not a regular file");
}

}  // namespace
}  // namespace heddle::model
