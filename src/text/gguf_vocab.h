#pragma once
// The vocabulary part of a GGUF file (keys tokenizer.ggml.*) as plain data. Called once at load, on the loading thread;
// the result's strings are views into the file's bytes, which must outlive them. Fails with one line that names the
// file and the key: a missing one, or a wrong type. What the values mean is checked by Vocab::create.
#include "base/result.h"
#include "model/gguf_metadata.h"
#include "text/vocab.h"

namespace heddle::text {

Result<VocabData> read_vocab(const model::GgufMetadata& metadata);

}  // namespace heddle::text
