#include "model/weights.h"

#include <doctest/doctest.h>

#include "model/gguf_builder.h"
#include "model/naive_device.h"

namespace heddle::model {
namespace {

// Keeps the bytes alive beside the set that looks into them.
struct File {
  std::string bytes;
  std::unique_ptr<GgufSet> set;

  explicit File(GgufBuilder builder) : bytes(builder.string("general.architecture", "llama").build()) {
    std::vector<GgufFile> parts;
    auto file = GgufFile::parse(as_bytes(bytes), "test.gguf");
    REQUIRE_MESSAGE(file.has_value(), file.error().message);
    parts.push_back(std::move(*file));
    set = std::make_unique<GgufSet>(std::move(GgufSet::join(std::move(parts)).value()));
  }
};

const NaiveLinear& naive(const std::unique_ptr<device::Linear>& linear) {
  return static_cast<const NaiveLinear&>(*linear);
}

TEST_CASE("parts are stacked in order, biases with them, and vectors become f32") {
  const File file(GgufBuilder()
                      .f32_tensor("a.weight", {4, 2})
                      .f32_tensor("b.weight", {4, 1})
                      .f32_tensor("a.bias", {2})
                      .f32_tensor("b.bias", {1})
                      .tensor("norm.weight", 1, {2}, std::string("\x00\x3c\x00\xc0", 4)));  // F16: 1, -2
  NaiveDevice device;
  Weights weights(*file.set, device, 16);
  std::unique_ptr<device::Linear> fused;
  device::Vector norm;
  weights.linear(fused, {{"a", 2}, {"b", 1}}, 4, {}, true);
  weights.vector(norm, "norm", 2);
  const auto loaded = weights.load();
  REQUIRE_MESSAGE(loaded.has_value(), loaded.error().message);
  CHECK(naive(fused).w == std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3});
  CHECK(naive(fused).bias == std::vector<float>{0, 1, 0});
  CHECK(std::vector<float>(norm.data, norm.data + norm.size) == std::vector<float>{1, -2});
}

TEST_CASE("interleaved rotary rows come out as halves: pair i is rows i and i + head_dim / 2 of its head") {
  std::vector<uint32_t> order;
  append_half_split_order(order, 2, 6);
  append_same_order(order, 3);
  CHECK(order == std::vector<uint32_t>{0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11, 12, 13, 14});
}

TEST_CASE("missing, misshaped and left-over tensors are one error that lists their names") {
  const File file(GgufBuilder()
                      .f32_tensor("good.weight", {4, 2})
                      .f32_tensor("turned.weight", {2, 4})
                      .f32_tensor("norm.weight", {3})
                      .f32_tensor("extra.weight", {1})
                      .f32_tensor("rope_freqs.weight", {2}));
  NaiveDevice device;
  Weights weights(*file.set, device, 16);
  std::unique_ptr<device::Linear> places[4];
  device::Vector norm;
  weights.linear(places[0], {{"good", 2}}, 4);
  weights.linear(places[1], {{"turned", 2}}, 4);
  weights.linear(places[2], {{"good", 2}, {"gone", 5}}, 4, {}, true);
  weights.vector(norm, "norm", 4);
  weights.may_have("rope_freqs");
  const auto loaded = weights.load();
  REQUIRE(!loaded.has_value());
  CHECK(loaded.error().message ==
        "test.gguf: tensors missing good.bias, gone.weight, gone.bias; misshaped turned.weight ([2, 4], expected [4, "
        "2]), "
        "norm.weight ([3], expected [4]); not used by this family: extra.weight");
  CHECK(places[0] == nullptr);
}

TEST_CASE("a long list of names is cut, with its length") {
  GgufBuilder builder;
  for (int i = 0; i < 20; ++i) builder.f32_tensor(fmt::format("t{}.weight", i), {1});
  const File file(std::move(builder));
  NaiveDevice device;
  Weights weights(*file.set, device, 16);
  const auto loaded = weights.load();
  REQUIRE(!loaded.has_value());
  CHECK(loaded.error().message.ends_with("t11.weight and 8 more"));
}

TEST_CASE("an error of the device, met on any thread, comes through with the file's name") {
  GgufBuilder builder;
  for (int i = 0; i < 50; ++i) builder.f32_tensor(fmt::format("t{}.weight", i), {4, 2});
  const File file(std::move(builder));
  NaiveDevice device;
  device.refused = "t33.weight";
  Weights weights(*file.set, device, 16);
  std::unique_ptr<device::Linear> places[50];
  for (int i = 0; i < 50; ++i) weights.linear(places[i], {{fmt::format("t{}", i), 2}}, 4);
  const auto loaded = weights.load();
  REQUIRE(!loaded.has_value());
  CHECK(loaded.error().message == "test.gguf: tensor t33.weight: refused");
}

}  // namespace
}  // namespace heddle::model
