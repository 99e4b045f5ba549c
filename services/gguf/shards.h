#pragma once
// Models in several files (gguf-format, "Sharded files"): names, numbers, and what must agree.

#include <cstdint>
#include <optional>
#include <string>

#include "services/base/status.h"
#include "services/gguf/container.h"

namespace strata::gguf {

// PREFIX-00002-of-00005.gguf; numbers count from 1.
struct ShardName {
  std::string prefix;  // with the folder
  uint32_t number = 0;
  uint32_t count = 0;
};
std::optional<ShardName> parse_shard_name(const std::string& path);
std::string shard_path(const std::string& prefix, uint32_t number, uint32_t count);

struct SplitNumber {
  uint64_t value = 0;
  uint64_t at = 0;  // position of the key, for errors
};

// The split keys of one file. count 0 or 1, or no key: a complete file.
struct SplitKeys {
  SplitNumber no;  // from 0
  SplitNumber count;
  SplitNumber tensors;  // of all shards

  bool complete() const { return count.value <= 1; }
};
// kDataLoss: a split key is missing, no integer or beyond its range.
Result<SplitKeys> read_split_keys(const Container& container, const std::string& path);

// The prefix of a first shard that may be opened as a model. kInvalidArgument: a later shard, or a file
// without the name of a first shard (the message says what to open); kDataLoss: name and keys disagree.
Result<std::string> check_first_shard(const SplitKeys& keys, const std::string& path);
// kDataLoss unless `keys` are those of shard `number` (from 0) of the model that begins with `first`.
Status check_later_shard(const SplitKeys& keys, uint64_t number, const SplitKeys& first,
                         const std::string& path);

}  // namespace strata::gguf
