#pragma once
// A model in one or several GGUF files, opened read-only and mapped. Every number in the file is hostile
// until checked (spec: gguf-format, "What a robust reader checks"); every error names the file, the byte
// position and the key or tensor.
//
// Memory: the mapping lives as long as any copy of the GgufFile (shared ownership); spans and string_views
// point into it. Threads: immutable after open(), so any thread may read.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "services/base/status.h"
#include "services/gguf/tensor_type.h"

namespace strata::gguf {

enum class ValueType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};
std::string_view value_type_name(ValueType type);  // "u32", "string", ...

struct Array;

// One metadata value. Strings point into the mapping.
struct Value {
  ValueType type = ValueType::kU8;
  std::variant<uint64_t, int64_t, double, bool, std::string_view, std::shared_ptr<const Array>> data;
};

// An array is kept as the position of its elements in the mapping: a vocabulary of 248,320 strings costs
// nothing until it is asked for.
struct Array {
  ValueType element = ValueType::kU8;
  uint64_t count = 0;
  std::span<const std::byte> bytes;  // the elements as the file has them
};

struct KeyValue {
  std::string_view key;
  Value value;
};

struct TensorInfo {
  std::string_view name;
  TensorType type = TensorType::kF32;
  uint32_t dim_count = 0;
  uint64_t dims[4] = {1, 1, 1, 1};  // dims[0] is contiguous; missing ones are 1
  uint32_t shard = 0;
  uint64_t file_offset = 0;  // absolute, in its shard
  uint64_t bytes = 0;
  std::span<const std::byte> data;  // in the mapping

  uint64_t row_bytes() const;
  uint64_t rows() const { return dims[1] * dims[2] * dims[3]; }
};

struct OpenOptions {
  // Also refuse NaN and infinity in tensors and in block scales. Costs a pass over all data.
  bool check_values = false;
};

class GgufFile {
 public:
  // Opens a complete file, or the first shard of several (the others are found beside it).
  // Errors: kNotFound, kPermissionDenied, kDataLoss (damaged, incomplete), kInvalidArgument (a later shard
  // was named; the message says which file to open), kUnimplemented (unknown tensor type; message names
  // tensor and id).
  static Result<GgufFile> open(const std::string& path, const OpenOptions& options = {});
  // Parses bytes that somebody else keeps alive; for tests and the fuzzer. `name` stands for the path in
  // errors.
  static Result<GgufFile> parse(std::span<const std::byte> bytes, const std::string& name,
                                const OpenOptions& options = {});

  const std::string& path() const;  // of the first shard
  std::span<const std::string> shard_paths() const;
  std::span<const KeyValue> metadata() const;   // of the first shard, file order
  std::span<const TensorInfo> tensors() const;  // all shards, file order
  uint32_t version() const;
  uint32_t alignment() const;    // of the first shard
  uint64_t data_offset() const;  // absolute begin of the first shard's data section
  uint64_t total_bytes() const;  // all shards

  const Value* find(std::string_view key) const;               // nullptr: absent
  const TensorInfo* find_tensor(std::string_view name) const;  // nullptr: absent

  // Typed access. Integers are taken from every integer type with a range check. kNotFound when the key is
  // absent, kInvalidArgument when it has another type or does not fit. The `_or` forms give the default when
  // absent only.
  Result<uint64_t> get_uint(std::string_view key, uint64_t max = UINT64_MAX) const;
  Result<uint64_t> get_uint_or(std::string_view key, uint64_t fallback, uint64_t max = UINT64_MAX) const;
  Result<int64_t> get_int(std::string_view key) const;
  Result<double> get_float(std::string_view key) const;  // f32, f64 or any integer
  Result<double> get_float_or(std::string_view key, double fallback) const;
  Result<bool> get_bool_or(std::string_view key, bool fallback) const;
  Result<std::string_view> get_string(std::string_view key) const;
  Result<std::vector<int64_t>> get_int_array(
      std::string_view key) const;  // any integer element type, u64 > 2^63-1 refused
  Result<std::vector<uint64_t>> get_uint_array(
      std::string_view key) const;  // any integer element type, negatives refused
  Result<std::vector<bool>> get_bool_array(std::string_view key) const;
  Result<std::vector<std::string_view>> get_string_array(std::string_view key) const;

  // XXH3 (128 bits, hex) of metadata, tensor table and 64 KiB samples of each shard: what "the same model"
  // means everywhere in the project. Does not read the whole of a large file.
  std::string fingerprint() const;

 private:
  struct Impl;
  explicit GgufFile(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

}  // namespace strata::gguf
