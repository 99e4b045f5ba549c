#pragma once
// Writes GGUF bytes, well-formed or not: what is given is written without a check. For tests and random
// models.

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "services/gguf/gguf_file.h"

namespace strata::gguf {

class FileBuilder {
 public:
  template <class T>
    requires std::is_arithmetic_v<T>
  static std::string number(T value) {
    std::string out(sizeof(T), '\0');
    std::memcpy(out.data(), &value, sizeof(T));
    return out;
  }
  static std::string text(std::string_view value) { return number<uint64_t>(value.size()).append(value); }

  // `bytes`: the value as the file has it.
  FileBuilder& key(std::string_view name, ValueType type, const std::string& bytes) {
    pairs_ += text(name) + number(static_cast<uint32_t>(type)) + bytes;
    ++pair_count_;
    return *this;
  }
  FileBuilder& array(std::string_view name, ValueType element, uint64_t count, const std::string& elements) {
    return key(name, ValueType::kArray, number(static_cast<uint32_t>(element)) + number(count) + elements);
  }
  // Data follow those of the tensor before, padded to 32.
  FileBuilder& tensor(std::string_view name, TensorType type, const std::vector<uint64_t>& dims,
                      const std::string& data) {
    data_.resize(place(name, type, dims, data.size()));
    data_ += data;
    return *this;
  }
  // The same for data that somebody else writes: at the returned place behind head().
  uint64_t place(std::string_view name, TensorType type, const std::vector<uint64_t>& dims, uint64_t bytes) {
    infos_ += text(name) + number(static_cast<uint32_t>(dims.size()));
    for (const uint64_t dim : dims) infos_ += number(dim);
    const uint64_t at = padded(data_bytes_);
    infos_ += number(static_cast<uint32_t>(type)) + number(at);
    data_bytes_ = at + bytes;
    ++tensor_count_;
    return at;
  }
  FileBuilder& counts(uint64_t tensors, uint64_t pairs) {
    tensor_count_ = tensors;
    pair_count_ = pairs;
    return *this;
  }

  // All that comes before the data.
  std::string head() const {
    std::string out =
        "GGUF" + number<uint32_t>(3) + number(tensor_count_) + number(pair_count_) + pairs_ + infos_;
    if (!infos_.empty()) out.resize(padded(out.size()));
    return out;
  }
  uint64_t data_bytes() const { return data_bytes_; }
  std::string build() const { return head() + data_; }

 private:
  static uint64_t padded(uint64_t size) { return (size + 31) / 32 * 32; }

  std::string pairs_;
  std::string infos_;
  std::string data_;
  uint64_t data_bytes_ = 0;  // those of place() included
  uint64_t pair_count_ = 0;
  uint64_t tensor_count_ = 0;
};

inline std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

}  // namespace strata::gguf
