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

const KeyValue* find_key(const Container& container, std::string_view name) {
  const auto pair = std::ranges::find(container.metadata, name, &KeyValue::key);
  return pair == container.metadata.end() ? nullptr : &*pair;
}

Result<SplitNumber> read_key(const Container& container, const std::string& path, const SplitKey& key) {
  const KeyValue* pair = find_key(container, key.name);
  if (pair == nullptr) {
    return fail(Code::kDataLoss, "{}: no key '{}', expected one in each shard", path, key.name);
  }
  const uint64_t at = container.position_of(pair->key);
  const auto value = unsigned_value(pair->value, key.max);
  if (!value) {
    return fail(Code::kDataLoss, "{}: byte {}: key '{}' has {}, expected an integer from 0 to {}", path, at,
                key.name, describe_value(pair->value), key.max);
  }
  return SplitNumber{*value, at};
}

Status expect_key(const char* key, const SplitNumber& found, uint64_t expected, const std::string& path) {
  if (found.value == expected) return {};
  return fail(Code::kDataLoss, "{}: byte {}: key '{}' is {}, expected {}", path, found.at, key, found.value,
              expected);
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
  if (find_key(container, count_key.name) == nullptr) return keys;
  TRY(keys.count, read_key(container, path, count_key));
  if (keys.complete()) return keys;
  // Numbers begin at 0.
  TRY(keys.no, read_key(container, path, {"split.no", keys.count.value - 1}));
  TRY(keys.tensors, read_key(container, path, {"split.tensors.count", kTensorsMax}));
  return keys;
}

Result<std::string> check_first_shard(const SplitKeys& keys, const std::string& path) {
  const uint64_t number = keys.no.value + 1;
  const uint64_t count = keys.count.value;
  const auto name = parse_shard_name(path);
  if (!name) {
    return fail(Code::kInvalidArgument,
                "{}: is shard {} of {}, expected a name that ends in -00001-of-{:05}.gguf: give the shards "
                "their published "
                "names and open the first",
                path, number, count, count);
  }
  if (name->number != number || name->count != count) {
    return fail(Code::kDataLoss,
                "{}: byte {}: key 'split.no' is {} of {}, expected {} of {} after the name of the file", path,
                keys.no.at, keys.no.value, count, int64_t{name->number} - 1, name->count);
  }
  if (number != 1) {
    return fail(Code::kInvalidArgument, "{}: is shard {} of {}, expected the first one: open {}", path,
                number, count, shard_path(name->prefix, 1, name->count));
  }
  return name->prefix;
}

Status check_later_shard(const SplitKeys& keys, uint64_t number, const SplitKeys& first,
                         const std::string& path) {
  TRY_OK(expect_key("split.count", keys.count, first.count.value, path));
  TRY_OK(expect_key("split.no", keys.no, number, path));
  return expect_key("split.tensors.count", keys.tensors, first.tensors.value, path);
}

}  // namespace strata::gguf
