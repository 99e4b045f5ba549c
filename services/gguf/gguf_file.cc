#include "services/gguf/gguf_file.h"

#include "services/gguf/finite_check.h"
#include "services/gguf/gguf_file_impl.h"
#include "services/gguf/printable.h"
#include "services/gguf/shards.h"

namespace strata::gguf {
namespace {

struct OpenedShard {
  MappedFile mapping;
  Container container;
  SplitKeys keys;
};

Result<OpenedShard> open_shard(const std::string& path) {
  TRY(MappedFile mapping, MappedFile::open(path));
  TRY(Container container, parse_container(mapping.bytes(), path));
  TRY(const SplitKeys keys, read_split_keys(container, path));
  return OpenedShard{std::move(mapping), std::move(container), keys};
}

Result<OpenedShard> open_later_shard(const std::string& path, uint64_t number, const SplitKeys& first) {
  TRY(OpenedShard shard, open_shard(path));
  TRY_OK(check_later_shard(shard.keys, number, first, path));
  return shard;
}

}  // namespace

uint64_t TensorInfo::row_bytes() const {
  const TensorTypeInfo& info = tensor_type_info(type);
  return dims[0] / info.block_values * info.block_bytes;
}

void GgufFile::Impl::add(const std::string& path, std::optional<MappedFile> mapping,
                         std::span<const std::byte> bytes, Container container) {
  const auto number = static_cast<uint32_t>(shards.size());
  if (number == 0) {
    version = container.version;
    alignment = container.alignment;
    metadata = std::move(container.metadata);
  }
  for (TensorInfo& tensor : container.tensors) tensor.shard = number;
  tensors.insert(tensors.end(), container.tensors.begin(), container.tensors.end());
  paths.push_back(path);
  shards.push_back(
      {std::move(mapping), bytes, container.table_end, container.data_offset, container.data_end});
}

Status GgufFile::Impl::finish(const OpenOptions& options) {
  keys = NameIndex<KeyValue, &KeyValue::key>(metadata);
  tensor_names = NameIndex<TensorInfo, &TensorInfo::name>(tensors);
  // Within one shard the parser has looked; this is about two shards with one tensor.
  if (const auto twice = tensor_names.first_duplicate(tensors)) {
    const TensorInfo& second = tensors[*twice];
    return fail(Code::kDataLoss,
                "{}: tensor '{}' stands in an earlier shard, too; expected once in all shards",
                paths[second.shard], printable(second.name));
  }
  if (!options.check_values) return {};
  for (const TensorInfo& tensor : tensors) TRY_OK(check_finite(tensor, paths[tensor.shard]));
  return {};
}

Lookup GgufFile::Impl::lookup(std::string_view key) const {
  const KeyValue* pair = keys.find(metadata, key);
  if (pair == nullptr) return {paths.front(), key};
  const auto* begin = reinterpret_cast<const char*>(shards.front().bytes.data());
  return {paths.front(), key, &pair->value, static_cast<uint64_t>(pair->key.data() - begin)};
}

Result<GgufFile> GgufFile::open(const std::string& path, const OpenOptions& options) {
  auto impl = std::make_shared<Impl>();
  TRY(OpenedShard first, open_shard(path));
  const SplitKeys keys = first.keys;
  auto add = [&impl](const std::string& of, OpenedShard shard) {
    const auto bytes = shard.mapping.bytes();
    impl->add(of, std::move(shard.mapping), bytes, std::move(shard.container));
  };
  if (keys.complete()) {
    add(path, std::move(first));
  } else {
    TRY(const std::string prefix, check_first_shard(keys, path));
    add(path, std::move(first));
    for (uint64_t number = 1; number < keys.count; ++number) {
      const std::string name =
          shard_path(prefix, static_cast<uint32_t>(number + 1), static_cast<uint32_t>(keys.count));
      auto shard = open_later_shard(name, number, keys);
      if (!shard) {
        return fail(shard.error().code(), "{}: shard {} of {}: {}", path, number + 1, keys.count,
                    shard.error().message());
      }
      add(name, std::move(*shard));
    }
    if (impl->tensors.size() != keys.tensors) {
      return fail(Code::kDataLoss,
                  "{}: the {} shards have {} tensors, expected {} as in 'split.tensors.count'", path,
                  keys.count, impl->tensors.size(), keys.tensors);
    }
  }
  TRY_OK(impl->finish(options));
  return GgufFile(std::move(impl));
}

Result<GgufFile> GgufFile::parse(std::span<const std::byte> bytes, const std::string& name,
                                 const OpenOptions& options) {
  auto impl = std::make_shared<Impl>();
  TRY(Container container, parse_container(bytes, name));
  impl->add(name, std::nullopt, bytes, std::move(container));
  TRY_OK(impl->finish(options));
  return GgufFile(std::move(impl));
}

const std::string& GgufFile::path() const { return impl_->paths.front(); }
std::span<const std::string> GgufFile::shard_paths() const { return impl_->paths; }
std::span<const KeyValue> GgufFile::metadata() const { return impl_->metadata; }
std::span<const TensorInfo> GgufFile::tensors() const { return impl_->tensors; }
uint32_t GgufFile::version() const { return impl_->version; }
uint32_t GgufFile::alignment() const { return impl_->alignment; }
uint64_t GgufFile::data_offset() const { return impl_->shards.front().data_offset; }

uint64_t GgufFile::total_bytes() const {
  uint64_t total = 0;
  for (const Shard& shard : impl_->shards) total += shard.bytes.size();
  return total;
}

const Value* GgufFile::find(std::string_view key) const {
  const KeyValue* pair = impl_->keys.find(impl_->metadata, key);
  return pair == nullptr ? nullptr : &pair->value;
}

const TensorInfo* GgufFile::find_tensor(std::string_view name) const {
  return impl_->tensor_names.find(impl_->tensors, name);
}

}  // namespace strata::gguf
