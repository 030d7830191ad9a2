// Fuzz entry (LLVM's signature) of the GGUF reader: whatever the bytes, the file is refused, or every view that it
// hands out can be read. Corpus: test/data/fuzz/gguf.
#include <vector>

#include "base/check.h"
#include "device/canonical.h"
#include "device/dequantize.h"
#include "model/config.h"
#include "model/gguf_set.h"

namespace {

using namespace heddle;

void check_error(const std::string& message) {
  HEDDLE_CHECK(!message.empty());
  HEDDLE_CHECK(message.find('\n') == std::string::npos);
}

void read_tensor(const model::GgufTensor& tensor) {
  const device::RawTensor raw = tensor.raw();
  std::vector<float> weights(raw.cols);
  device::dequantize_row(raw.type, raw.row(raw.rows - 1), raw.cols, weights.data());
  if (device::is_float(raw.type)) return;
  const uint32_t n_groups = raw.cols / device::canonical_layout(raw.type).group;
  std::vector<int8_t> codes(raw.cols);
  std::vector<float> scales(n_groups), mins(n_groups);
  device::canonical_row(raw.type, raw.row(0), raw.cols, {codes.data(), scales.data(), mins.data()});
}

// Reads what the getters give for keys that matter and their neighbours.
void read_metadata(const model::GgufMetadata& metadata) {
  size_t seen = 0;
  for (const char* key : {"tokenizer.ggml.tokens", "tokenizer.ggml.merges", "general.tags"}) {
    if (const auto strings = metadata.get_strings(key)) {
      for (const std::string_view text : *strings) seen += text.empty() ? 0u : static_cast<uint8_t>(text.back());
    }
  }
  if (const auto scores = metadata.get_f32s("tokenizer.ggml.scores")) {
    for (size_t i = 0; i < scores->size(); ++i) seen += (*scores)[i] > 0.0f;
  }
  if (const auto types = metadata.get_i32s("tokenizer.ggml.token_type")) {
    for (size_t i = 0; i < types->size(); ++i) seen += (*types)[i] > 0;
  }
  if (const auto name = metadata.get_string("general.name"); name && !name->empty()) seen += name->size();
  volatile size_t sink = seen;
  (void)sink;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Result<model::GgufFile> file = model::GgufFile::parse({reinterpret_cast<const std::byte*>(data), size}, "fuzz.gguf");
  if (!file) {
    check_error(file.error().message);
    return 0;
  }
  for (const model::GgufTensor& tensor : file->tensors()) read_tensor(tensor);
  read_metadata(file->metadata());
  std::vector<model::GgufFile> parts;
  parts.push_back(std::move(*file));
  const Result<model::GgufSet> set = model::GgufSet::join(std::move(parts));
  if (!set) {
    check_error(set.error().message);
    return 0;
  }
  const Result<model::ModelConfig> config = model::read_config(*set);
  if (!config) check_error(config.error().message);
  return 0;
}
