#include "services/model/tensor_binder.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

namespace strata::model {
namespace {

std::vector<uint64_t> dims_of(const gguf::TensorInfo& tensor) {
  return {tensor.dims, tensor.dims + std::max(tensor.dim_count, 1u)};
}

// Trailing ones say nothing: [5] and [5, 1] are the same shape.
bool same_shape(const gguf::TensorInfo& tensor, const std::vector<uint64_t>& shape) {
  for (std::size_t i = 0; i < 4; ++i) {
    if (tensor.dims[i] != (i < shape.size() ? shape[i] : 1)) return false;
  }
  return true;
}

Matrix as_matrix(const gguf::TensorInfo& tensor) {
  return {.type = tensor.type,
          .rows = static_cast<uint32_t>(tensor.dims[1]),
          .cols = static_cast<uint32_t>(tensor.dims[0]),
          .data = tensor.data.data(),
          .row_bytes = tensor.row_bytes()};
}

bool fits_matrix(const gguf::TensorInfo& tensor) {
  return tensor.dims[0] <= UINT32_MAX && tensor.dims[1] <= UINT32_MAX && tensor.dims[2] <= UINT32_MAX;
}

bool is_float_type(gguf::TensorType type) {
  return type == gguf::TensorType::kF32 || type == gguf::TensorType::kF16 || type == gguf::TensorType::kBF16;
}

}  // namespace

Result<const gguf::TensorInfo*> TensorBinder::find(std::string_view name, std::string_view expected) const {
  const gguf::TensorInfo* tensor = file_.find_tensor(name);
  if (tensor != nullptr) return tensor;
  return fail(Code::kNotFound, "{}: no tensor {}, expected {}", path(), name, expected);
}

Failure TensorBinder::shape_error(const gguf::TensorInfo& tensor, std::string_view expected) const {
  return fail(Code::kInvalidArgument, "{}: tensor {} is [{}], expected {}", path(), tensor.name,
              fmt::join(dims_of(tensor), ", "), expected);
}

Status TensorBinder::require_supported(const gguf::TensorInfo& tensor) const {
  const Status status = quant::require_supported(tensor.type);
  if (status.ok()) return {};
  return fail(status.code(), "{}: tensor {}: {}", path(), tensor.name, status.message());
}

Result<Matrix> TensorBinder::bind(const gguf::TensorInfo& tensor, std::string_view name) const {
  TRY_OK(require_supported(tensor));
  Matrix found = as_matrix(tensor);
  TRY(const auto scale, scales(name, 1));
  if (!scale.empty()) found.scale = scale[0];
  return found;
}

Result<Matrix> TensorBinder::matrix(std::string_view name, uint64_t rows, uint64_t cols) const {
  const std::string expected = fmt::format("[{}, {}]", cols, rows);
  TRY(const gguf::TensorInfo* tensor, find(fmt::format("{}.weight", name), expected));
  if (!same_shape(*tensor, {cols, rows}) || !fits_matrix(*tensor)) return shape_error(*tensor, expected);
  return bind(*tensor, name);
}

Result<Matrix> TensorBinder::matrix_of_at_least(std::string_view name, uint64_t rows, uint64_t cols) const {
  const std::string expected = fmt::format("[{}, {} or more]", cols, rows);
  TRY(const gguf::TensorInfo* tensor, find(fmt::format("{}.weight", name), expected));
  if (!same_shape(*tensor, {cols, tensor->dims[1]}) || tensor->dims[1] < rows || !fits_matrix(*tensor)) {
    return shape_error(*tensor, expected);
  }
  return bind(*tensor, name);
}

Matrix TensorBinder::slice(const Matrix& joined, uint32_t begin, uint32_t rows) {
  Matrix part = joined;
  part.data = joined.row(begin);
  part.rows = rows;
  return part;
}

Result<Vector> TensorBinder::vector(std::string_view name,
                                    std::initializer_list<std::vector<uint64_t>> shapes) const {
  std::string expected;
  for (const auto& shape : shapes) {
    fmt::format_to(std::back_inserter(expected), "{}[{}]", expected.empty() ? "" : " or ",
                   fmt::join(shape, ", "));
  }
  TRY(const gguf::TensorInfo* tensor, find(name, expected));
  const bool fits = std::any_of(shapes.begin(), shapes.end(),
                                [&](const auto& shape) { return same_shape(*tensor, shape); });
  const uint64_t size = tensor->dims[0] * tensor->rows();
  if (!fits || size > UINT32_MAX) return shape_error(*tensor, expected);
  if (!is_float_type(tensor->type)) {
    return fail(Code::kUnimplemented, "{}: tensor {} is {}, expected F32, F16 or BF16", path(), name,
                gguf::tensor_type_info(tensor->type).name);
  }
  const std::byte* data = tensor->data.data();
  if (tensor->type == gguf::TensorType::kF32 &&
      reinterpret_cast<std::uintptr_t>(data) % alignof(float) == 0) {
    return Vector{.data = reinterpret_cast<const float*>(data), .size = static_cast<uint32_t>(size)};
  }
  auto& values = widened_.emplace_back(size);
  quant::dequantize_row(tensor->type, data, values.data(), size);
  return Vector{.data = values.data(), .size = static_cast<uint32_t>(size)};
}

Result<TensorBinder::ExpertMatrices> TensorBinder::experts(std::string_view name,
                                                           const ExpertShape& shape) const {
  const auto text = [](uint64_t size, std::string_view word) {
    return size == kAnySize ? std::string(word) : std::to_string(size);
  };
  const std::string expected = fmt::format("[{}, {}, {}]", text(shape.cols, "width"),
                                           text(shape.rows, "rows"), text(shape.count, "experts"));
  const auto agrees = [](uint64_t found, uint64_t wanted) {
    return found > 0 && (wanted == kAnySize || found == wanted);
  };
  TRY(const gguf::TensorInfo* tensor, find(fmt::format("{}.weight", name), expected));
  if (!agrees(tensor->dims[0], shape.cols) || !agrees(tensor->dims[1], shape.rows) ||
      !agrees(tensor->dims[2], shape.count) || tensor->dims[3] != 1 || !fits_matrix(*tensor)) {
    return shape_error(*tensor, expected);
  }
  TRY_OK(require_supported(*tensor));
  ExpertMatrices found;
  found.first = as_matrix(*tensor);
  found.count = static_cast<uint32_t>(tensor->dims[2]);
  TRY(found.scale, scales(name, found.count));
  if (found.scale.size() == 1) found.scale.resize(found.count, found.scale[0]);
  return found;
}

// NAME.scale: one value, or one for each of `count`; empty when the file has none.
Result<std::vector<float>> TensorBinder::scales(std::string_view name, uint64_t count) const {
  const std::string scale_name = fmt::format("{}.scale", name);
  if (!has(scale_name)) return std::vector<float>();
  TRY(const Vector found, vector(scale_name, {{1}, {count}}));
  return std::vector<float>(found.data, found.data + found.size);
}

}  // namespace strata::model
