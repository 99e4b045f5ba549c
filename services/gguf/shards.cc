#include "services/gguf/shards.h"

#include <algorithm>
#include <charconv>

#include "services/gguf/integer.h"

namespace strata::gguf {
namespace {

constexpr uint64_t kShardsMax = 65535;  // split.count is a u16
constexpr uint64_t kTensorsMax = (uint64_t{1} << 31) - 1;

std::optional<uint32_t> five_digits(std::string_view text) {
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.size() != 5 || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

struct SplitKey {
  std::string_view name;
  uint64_t max;
};

Result<uint64_t> read_key(const Container& container, const std::string& path, const SplitKey& key) {
  const auto pair = std::ranges::find(container.metadata, key.name, &KeyValue::key);
  if (pair == container.metadata.end())
    return fail(Code::kDataLoss, "{}: key '{}' is missing in a shard", path, key.name);
  const auto value = unsigned_value(pair->value, key.max);
  if (!value) {
    return fail(Code::kDataLoss, "{}: key '{}' has {}, expected an integer from 0 to {}", path, key.name,
                describe_value(pair->value), key.max);
  }
  return *value;
}

}  // namespace

std::optional<ShardName> parse_shard_name(const std::string& path) {
  constexpr std::string_view kForm = "-00000-of-00000.gguf";
  if (path.size() <= kForm.size()) return std::nullopt;
  const std::string_view tail = std::string_view(path).substr(path.size() - kForm.size());
  const auto number = five_digits(tail.substr(1, 5));
  const auto count = five_digits(tail.substr(10, 5));
  if (tail[0] != '-' || tail.substr(6, 4) != "-of-" || tail.substr(15) != ".gguf" || !number || !count)
    return std::nullopt;
  return ShardName{path.substr(0, path.size() - kForm.size()), *number, *count};
}

std::string shard_path(const std::string& prefix, uint32_t number, uint32_t count) {
  return fmt::format("{}-{:05}-of-{:05}.gguf", prefix, number, count);
}

Result<SplitKeys> read_split_keys(const Container& container, const std::string& path) {
  SplitKeys keys;
  const SplitKey count_key{"split.count", kShardsMax};
  if (std::ranges::find(container.metadata, count_key.name, &KeyValue::key) == container.metadata.end())
    return keys;
  TRY(keys.count, read_key(container, path, count_key));
  if (keys.complete()) return keys;
  TRY(keys.no, read_key(container, path, {"split.no", kShardsMax}));
  TRY(keys.tensors, read_key(container, path, {"split.tensors.count", kTensorsMax}));
  if (keys.no >= keys.count) {
    return fail(Code::kDataLoss, "{}: key 'split.no' is {}, expected less than 'split.count', which is {}",
                path, keys.no, keys.count);
  }
  return keys;
}

Result<std::string> check_first_shard(const SplitKeys& keys, const std::string& path) {
  const auto name = parse_shard_name(path);
  if (!name) {
    return fail(Code::kInvalidArgument,
                "{}: is shard {} of {}, expected a name that ends in -00001-of-{:05}.gguf: give the shards "
                "their published names and "
                "open the first",
                path, keys.no + 1, keys.count, keys.count);
  }
  if (name->number == keys.no + 1 && name->number != 1) {
    return fail(Code::kInvalidArgument, "{}: is shard {} of {}; open the first one, {}", path, keys.no + 1,
                keys.count, shard_path(name->prefix, 1, name->count));
  }
  if (name->number != keys.no + 1 || name->count != keys.count) {
    return fail(Code::kDataLoss, "{}: named shard {} of {}, but its keys say {} of {}", path, name->number,
                name->count, keys.no + 1, keys.count);
  }
  return name->prefix;
}

Status check_later_shard(const SplitKeys& keys, uint64_t number, const SplitKeys& first,
                         const std::string& path) {
  if (keys.count != first.count) {
    return fail(Code::kDataLoss, "{}: key 'split.count' is {}, expected {} as in the first shard", path,
                keys.count, first.count);
  }
  if (keys.no != number)
    return fail(Code::kDataLoss, "{}: key 'split.no' is {}, expected {}", path, keys.no, number);
  if (keys.tensors != first.tensors) {
    return fail(Code::kDataLoss, "{}: key 'split.tensors.count' is {}, expected {} as in the first shard",
                path, keys.tensors, first.tensors);
  }
  return {};
}

}  // namespace strata::gguf
