#pragma once
// What a GgufFile holds; shared by the files that implement it.

#include <optional>

#include "services/gguf/container.h"
#include "services/gguf/gguf_file.h"
#include "services/gguf/mapped_file.h"
#include "services/gguf/name_index.h"

namespace strata::gguf {

struct Shard {
  std::string path;
  std::optional<MappedFile> mapping;  // none for bytes that somebody else keeps
  Container container;                // without its tensors, which have moved to the model's
};

// What a typed accessor needs of a key, for the answer or for the error.
struct Lookup {
  const std::string& path;
  std::string_view key;
  const Value* value = nullptr;  // nullptr: absent
  uint64_t position = 0;         // of the key in the first shard
};

struct GgufFile::Impl {
  std::vector<Shard> shards;
  std::vector<std::string> paths;  // of the shards
  std::vector<TensorInfo> tensors;
  NameIndex<KeyValue, &KeyValue::key> keys;  // of the first shard
  NameIndex<TensorInfo, &TensorInfo::name> tensor_names;

  const Container& first() const { return shards.front().container; }
  void add(Shard shard);
  // After the last shard.
  Status finish(const OpenOptions& options);
  Lookup lookup(std::string_view key) const;
};

}  // namespace strata::gguf
