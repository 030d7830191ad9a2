#include "model/weights.h"

#include <fmt/ranges.h>
#include <tbb/parallel_for_each.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <unordered_set>

#include "device/dequantize.h"

namespace heddle::model {
namespace {

constexpr size_t kNamesListed = 12;  // in an error line

std::string list(std::vector<std::string> names) {
  const size_t n = names.size();
  if (n > kNamesListed) names.resize(kNamesListed);
  std::string text = fmt::format("{}", fmt::join(names, ", "));
  if (n > kNamesListed) text += fmt::format(" and {} more", n - kNamesListed);
  return text;
}

std::string weight(std::string_view name) { return fmt::format("{}.weight", name); }
std::string bias(std::string_view name) { return fmt::format("{}.bias", name); }

}  // namespace

void Weights::linear(std::unique_ptr<device::Linear>& place, std::vector<LinearPart> parts, uint32_t cols,
                     std::vector<uint32_t> row_order, bool with_bias, bool fine) {
  linears_.push_back({&place, std::move(parts), cols, std::move(row_order), with_bias, fine});
}

void Weights::vector(device::Vector& place, std::string name, uint32_t size) {
  vectors_.push_back({&place, std::move(name), size});
}

Result<void> Weights::check() const {
  std::vector<std::string> missing, misshaped, left_over;
  std::unordered_set<std::string> wanted(read_before_.begin(), read_before_.end());
  const auto want = [&](const std::string& name, uint32_t rows, uint32_t cols) {
    wanted.insert(name);
    const GgufTensor* tensor = files_.find(name);
    if (tensor == nullptr) {
      missing.push_back(name);
    } else if (tensor->rows() != rows || tensor->cols() != cols) {
      const std::string expected = rows == 1 ? fmt::format("[{}]", cols) : fmt::format("[{}, {}]", cols, rows);
      misshaped.push_back(fmt::format("{} ({}, expected {})", name, tensor->shape(), expected));
    }
  };
  for (const LinearTask& task : linears_) {
    for (const LinearPart& part : task.parts) {
      want(weight(part.name), part.rows, task.cols);
      if (task.bias) want(bias(part.name), 1, part.rows);
    }
  }
  for (const VectorTask& task : vectors_) want(weight(task.name), 1, task.size);
  files_.each_tensor([&](const GgufTensor& tensor) {
    if (!wanted.contains(std::string(tensor.name))) left_over.emplace_back(tensor.name);
  });

  std::vector<std::string> faults;
  if (!missing.empty()) faults.push_back("missing " + list(std::move(missing)));
  if (!misshaped.empty()) faults.push_back("misshaped " + list(std::move(misshaped)));
  if (!left_over.empty()) faults.push_back("not used by this family: " + list(std::move(left_over)));
  if (faults.empty()) return {};
  return fail(fmt::format("{}: tensors {}", files_.path(), fmt::join(faults, "; ")));
}

Result<void> Weights::run(const LinearTask& task) const {
  device::LinearSource source;
  std::vector<float> biases;
  for (const LinearPart& part : task.parts) {
    source.parts.push_back(files_.find(weight(part.name))->raw());
    if (!task.bias) continue;
    const std::vector<float> values = vector_values(*files_.find(bias(part.name)));
    biases.insert(biases.end(), values.begin(), values.end());
  }
  source.row_order = task.row_order;
  source.fine = task.fine;
  if (task.bias) source.bias = device_.make_vector(biases);
  auto linear = device_.make_linear(source);
  if (!linear) return fail(fmt::format("{}: {}", files_.path(), linear.error().message));
  *task.place = std::move(*linear);
  for (const LinearPart& part : task.parts) files_.drop_pages(*files_.find(weight(part.name)));
  return {};
}

Result<void> Weights::load() {
  if (auto checked = check(); !checked) return checked;
  for (const VectorTask& task : vectors_)
    *task.place = device_.make_vector(vector_values(*files_.find(weight(task.name))));

  // Big ones first, so that no thread ends with one alone.
  for (LinearTask& task : linears_)
    for (const LinearPart& part : task.parts) task.file_bytes += files_.find(weight(part.name))->data().size();
  std::stable_sort(linears_.begin(), linears_.end(),
                   [](const LinearTask& a, const LinearTask& b) { return a.file_bytes > b.file_bytes; });
  std::mutex mutex;
  std::optional<Error> first_error;
  tbb::parallel_for_each(linears_, [&](const LinearTask& task) {
    auto done = run(task);
    if (done) return;
    const std::lock_guard lock(mutex);
    if (!first_error) first_error = std::move(done.error());
  });
  if (first_error) return tl::unexpected(std::move(*first_error));
  return {};
}

std::vector<float> vector_values(const GgufTensor& tensor) {
  std::vector<float> values(tensor.cols());
  device::dequantize_row(tensor.type, tensor.data().data(), tensor.cols(), values.data());
  return values;
}

void append_half_split_order(std::vector<uint32_t>& order, uint32_t n_heads, uint32_t head_dim) {
  for (uint32_t h = 0; h < n_heads; ++h) {
    const auto first = static_cast<uint32_t>(order.size());
    for (uint32_t i = 0; i < head_dim; ++i) {
      const uint32_t pair = i % (head_dim / 2), half = i / (head_dim / 2);
      order.push_back(first + 2 * pair + half);
    }
  }
}

void append_same_order(std::vector<uint32_t>& order, uint32_t n_rows) {
  for (uint32_t i = 0; i < n_rows; ++i) order.push_back(static_cast<uint32_t>(order.size()));
}

}  // namespace heddle::model
