#include "services/gguf/gguf_file.h"

#include "services/gguf/finite_check.h"
#include "services/gguf/gguf_file_impl.h"
#include "services/gguf/printable.h"
#include "services/gguf/shards.h"

namespace strata::gguf {
namespace {

struct OpenedShard {
  Shard shard;
  SplitKeys keys;
};

Result<OpenedShard> open_shard(const std::string& path) {
  TRY(MappedFile mapping, MappedFile::open(path));
  TRY(Container container, parse_container(mapping.bytes(), path));
  TRY(const SplitKeys keys, read_split_keys(container, path));
  return OpenedShard{{path, std::move(mapping), std::move(container)}, keys};
}

Result<Shard> open_later_shard(const std::string& path, uint64_t number, const SplitKeys& first) {
  TRY(OpenedShard opened, open_shard(path));
  TRY_OK(check_later_shard(opened.keys, number, first, path));
  return std::move(opened.shard);
}

}  // namespace

uint64_t TensorInfo::row_bytes() const {
  const TensorTypeInfo& info = tensor_type_info(type);
  return dims[0] / info.block_values * info.block_bytes;
}

void GgufFile::Impl::add(Shard shard) {
  const auto number = static_cast<uint32_t>(shards.size());
  for (TensorInfo& tensor : std::exchange(shard.container.tensors, {})) {
    tensor.shard = number;
    tensors.push_back(tensor);
  }
  paths.push_back(shard.path);
  shards.push_back(std::move(shard));
}

Status GgufFile::Impl::finish(const OpenOptions& options) {
  keys = NameIndex<KeyValue, &KeyValue::key>(first().metadata);
  tensor_names = NameIndex<TensorInfo, &TensorInfo::name>(tensors);
  // Within one shard the parser has looked; this is about two shards with one tensor.
  if (const auto twice = tensor_names.first_duplicate(tensors)) {
    const TensorInfo& second = tensors[*twice];
    const Shard& shard = shards[second.shard];
    return fail(Code::kDataLoss,
                "{}: shard {} of {}: {}: byte {}: tensor '{}' stands in an earlier shard, too; expected once "
                "in all shards",
                paths.front(), second.shard + 1, shards.size(), shard.path,
                shard.container.position_of(second.name), printable(second.name));
  }
  if (!options.check_values) return {};
  for (const TensorInfo& tensor : tensors) TRY_OK(check_finite(tensor, paths[tensor.shard]));
  return {};
}

Lookup GgufFile::Impl::lookup(std::string_view key) const {
  const KeyValue* pair = keys.find(first().metadata, key);
  if (pair == nullptr) return {paths.front(), key};
  return {paths.front(), key, &pair->value, first().position_of(pair->key)};
}

Result<GgufFile> GgufFile::open(const std::string& path, const OpenOptions& options) {
  auto impl = std::make_shared<Impl>();
  TRY(OpenedShard first, open_shard(path));
  const SplitKeys keys = first.keys;
  if (keys.complete()) {
    impl->add(std::move(first.shard));
    TRY_OK(impl->finish(options));
    return GgufFile(std::move(impl));
  }
  TRY(const std::string prefix, check_first_shard(keys, path));
  impl->add(std::move(first.shard));
  const auto count = static_cast<uint32_t>(keys.count.value);
  for (uint32_t number = 1; number < count; ++number) {
    Result<Shard> shard = open_later_shard(shard_path(prefix, number + 1, count), number, keys);
    if (!shard) {
      return fail(shard.error().code(), "{}: shard {} of {}: {}", path, number + 1, count,
                  shard.error().message());
    }
    impl->add(std::move(*shard));
  }
  if (impl->tensors.size() != keys.tensors.value) {
    return fail(Code::kDataLoss,
                "{}: byte {}: key 'split.tensors.count': the {} shards have {} tensors, expected {}", path,
                keys.tensors.at, count, impl->tensors.size(), keys.tensors.value);
  }
  TRY_OK(impl->finish(options));
  return GgufFile(std::move(impl));
}

Result<GgufFile> GgufFile::parse(std::span<const std::byte> bytes, const std::string& name,
                                 const OpenOptions& options) {
  auto impl = std::make_shared<Impl>();
  TRY(Container container, parse_container(bytes, name));
  impl->add({name, std::nullopt, std::move(container)});
  TRY_OK(impl->finish(options));
  return GgufFile(std::move(impl));
}

const std::string& GgufFile::path() const { return impl_->paths.front(); }
std::span<const std::string> GgufFile::shard_paths() const { return impl_->paths; }
std::span<const KeyValue> GgufFile::metadata() const { return impl_->first().metadata; }
std::span<const TensorInfo> GgufFile::tensors() const { return impl_->tensors; }
uint32_t GgufFile::version() const { return impl_->first().version; }
uint32_t GgufFile::alignment() const { return impl_->first().alignment; }
uint64_t GgufFile::data_offset() const { return impl_->first().data_offset; }

uint64_t GgufFile::total_bytes() const {
  uint64_t total = 0;
  for (const Shard& shard : impl_->shards) total += shard.container.bytes.size();
  return total;
}

const Value* GgufFile::find(std::string_view key) const { return impl_->lookup(key).value; }

const TensorInfo* GgufFile::find_tensor(std::string_view name) const {
  return impl_->tensor_names.find(impl_->tensors, name);
}

}  // namespace strata::gguf
