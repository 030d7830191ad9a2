#pragma once
// A model's weight files: one GGUF file, or the parts of a split one (NAME-00001-of-0000N.gguf; any part may be named).
// The metadata is the first part's; tensors are those of all parts. Owner: the loader. Any thread may read. Fails with
// one line: a missing part, parts that disagree, a tensor in two parts, a wrong number of tensors.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/gguf.h"

namespace heddle::model {

class GgufSet {
 public:
  static Result<GgufSet> open(const std::string& path);
  // Parts in order, already opened.
  static Result<GgufSet> join(std::vector<GgufFile> parts);

  const std::string& path() const { return parts_.front().path(); }
  const GgufMetadata& metadata() const { return parts_.front().metadata(); }
  std::span<const GgufFile> parts() const { return parts_; }
  size_t n_tensors() const;
  uint64_t tensor_bytes() const;
  const GgufTensor* find(std::string_view name) const;  // null when there is none
  void drop_pages(const GgufTensor& tensor) const;      // of this set; see GgufFile::drop_pages

  // Calls f(const GgufTensor&) for every tensor, in the order of parts and files.
  template <class F>
  void each_tensor(F&& f) const {
    for (const GgufFile& part : parts_) {
      for (const GgufTensor& tensor : part.tensors()) f(tensor);
    }
  }

 private:
  explicit GgufSet(std::vector<GgufFile> parts) : parts_(std::move(parts)) {}
  std::vector<GgufFile> parts_;  // at least one
};

}  // namespace heddle::model
