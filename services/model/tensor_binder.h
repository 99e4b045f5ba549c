#pragma once
// Finds the tensors of a role in a GGUF file and checks type and shape. Errors name file and tensor.

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "services/model/model_weights.h"

namespace strata::model {

class TensorBinder {
 public:
  // `widened` receives the storage of vectors that cannot be used in place.
  TensorBinder(const gguf::GgufFile& file, std::vector<std::vector<float>>& widened)
      : file_(file), widened_(widened) {}

  const std::string& path() const { return file_.path(); }
  bool has(std::string_view name) const { return file_.find_tensor(name) != nullptr; }

  // NAME.weight (rows, cols) with its NAME.scale, if the file has one.
  Result<Matrix> matrix(std::string_view name, uint64_t rows, uint64_t cols) const;
  // The same where the file may have more rows than are needed.
  Result<Matrix> matrix_of_at_least(std::string_view name, uint64_t rows, uint64_t cols) const;
  // Rows begin..begin+rows-1 of a matrix of several parts.
  static Matrix slice(const Matrix& joined, uint32_t begin, uint32_t rows);
  // A tensor of `size` values whose dims are one of `shapes`, widened unless it is F32.
  Result<Vector> vector(std::string_view name, std::initializer_list<std::vector<uint64_t>> shapes) const;
  // NAME.weight (count, rows, cols), where kAnySize stands for what the file has.
  struct ExpertShape {
    uint64_t count = 0, rows = 0, cols = 0;
  };
  struct ExpertMatrices {
    Matrix first;  // of expert 0
    uint32_t count = 0;
    std::vector<float> scale;  // NAME.scale per expert, or empty
  };
  static constexpr uint64_t kAnySize = 0;
  Result<ExpertMatrices> experts(std::string_view name, const ExpertShape& shape) const;

 private:
  Result<const gguf::TensorInfo*> find(std::string_view name, std::string_view expected) const;
  Status require_supported(const gguf::TensorInfo& tensor) const;
  Result<Matrix> bind(const gguf::TensorInfo& tensor, std::string_view name) const;
  Result<std::vector<float>> scales(std::string_view name, uint64_t count) const;
  Failure shape_error(const gguf::TensorInfo& tensor, std::string_view expected) const;

  const gguf::GgufFile& file_;
  std::vector<std::vector<float>>& widened_;
};

}  // namespace strata::model
