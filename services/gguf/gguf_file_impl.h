#pragma once
// What a GgufFile holds; shared by the files that implement it.

#include <optional>

#include "services/gguf/container.h"
#include "services/gguf/gguf_file.h"
#include "services/gguf/mapped_file.h"
#include "services/gguf/name_index.h"

namespace strata::gguf {

struct Shard {
  std::optional<MappedFile> mapping;  // none for bytes that somebody else keeps
  std::span<const std::byte> bytes;
  uint64_t table_end = 0;
  uint64_t data_offset = 0;
  uint64_t data_end = 0;
};

// What a typed accessor needs of a key, for the answer or for the error.
struct Lookup {
  const std::string& path;
  std::string_view key;
  const Value* value = nullptr;  // nullptr: absent
  uint64_t position = 0;         // of the key in the first shard
};

struct GgufFile::Impl {
  std::vector<std::string> paths;  // of the shards
  std::vector<Shard> shards;
  uint32_t version = 0;
  uint32_t alignment = 0;
  std::vector<KeyValue> metadata;
  std::vector<TensorInfo> tensors;
  NameIndex<KeyValue, &KeyValue::key> keys;
  NameIndex<TensorInfo, &TensorInfo::name> tensor_names;

  // The first shard's metadata become the model's; tensors of every shard are added.
  void add(const std::string& path, std::optional<MappedFile> mapping, std::span<const std::byte> bytes,
           Container container);
  Lookup lookup(std::string_view key) const;
  Status finish(const OpenOptions& options);
};

}  // namespace strata::gguf
