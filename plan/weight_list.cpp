// Owns the list of tensors a plan reads: found by name, checked, each listed once.
#include "plan/weight_list.h"

#include <fmt/format.h>

#include <algorithm>

#include "plan/p64_format.h"

namespace lathe {
namespace {

std::string shape_text(const std::vector<std::int64_t>& dims) {
  std::string text;
  for (auto dim = dims.rbegin(); dim != dims.rend(); ++dim) {
    text += fmt::format("{}{}", text.empty() ? "" : " x ", *dim);
  }
  return text;
}

bool has_shape(const GgufTensor& tensor, std::int64_t n, std::int64_t k) {
  const bool flat =
      std::all_of(tensor.dims.begin() + std::min<std::ptrdiff_t>(2, std::ssize(tensor.dims)),
                  tensor.dims.end(), [](std::int64_t dim) { return dim == 1; });
  return flat && tensor.k() == k && tensor.rows() == n;
}

}  // namespace

Result<int> WeightList::matrix(const std::string& name, std::int64_t n, std::int64_t k) {
  return add(name, n, k);
}

Result<int> WeightList::vector(const std::string& name, std::int64_t k) {
  LATHE_ASSIGN(const int index, add(name, 1, k));
  const Format format = (*this)[index].format;
  if (format == Format::f32) return index;
  return Error{Code::unsupported,
               fmt::format("tensor '{}' is stored as {}; norms and biases must be f32", name,
                           row(format).name),
               {{"file", file_.path()}}};
}

Result<int> WeightList::add(const std::string& name, std::int64_t n, std::int64_t k) {
  if (const auto found = index_.find(name); found != index_.end()) return found->second;
  const GgufTensor* tensor = file_.tensor(name);
  if (tensor == nullptr) {
    return Error{
        Code::not_found, fmt::format("the tensor '{}' is missing", name), {{"file", file_.path()}}};
  }
  if (!has_shape(*tensor, n, k)) {
    const std::string needed = n == 1 ? fmt::format("{}", k) : fmt::format("{} x {}", n, k);
    return Error{Code::corrupt_file,
                 fmt::format("tensor '{}' has the shape {}, but the model needs {}", name,
                             shape_text(tensor->dims), needed),
                 {{"file", file_.path()}}};
  }
  auto format = format_by_ggml_type(tensor->ggml_type);
  if (!format) {
    Error error = std::move(format).error().with("tensor", name).with("file", file_.path());
    const p64::Type* stored = p64::find_type(tensor->ggml_type);
    error.message =
        stored != nullptr
            ? fmt::format("tensor '{}' cannot be read: no kernel here reads {}", name, stored->name)
            : fmt::format("tensor '{}' cannot be read: {}", name, error.message);
    return error;
  }
  const int index = static_cast<int>(slots_.size());
  slots_.push_back({name, Layout::raw, *format, n, k, tensor->offset, tensor->bytes});
  index_.emplace(name, index);
  return index;
}

}  // namespace lathe
