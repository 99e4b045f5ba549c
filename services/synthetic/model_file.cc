#include "services/synthetic/model_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>
#include <vector>

#include "services/synthetic/encoder.h"
#include "services/sys/cpus.h"
#include "services/sys/process.h"

namespace strata::synthetic {
namespace {

constexpr uint64_t kPoolValues = 1 << 20;
constexpr uint64_t kChunkBytes = 32 << 20;  // what a thread maps and fills at a time

uint64_t prime_up_to(uint64_t n) {
  const auto is_prime = [](uint64_t candidate) {
    for (uint64_t divisor = 2; divisor * divisor <= candidate; ++divisor)
      if (candidate % divisor == 0) return false;
    return true;
  };
  while (n > 2 && !is_prime(n)) --n;
  return n;
}

// Encoded random values by type and distribution.
class Pools {
 public:
  using Key = std::tuple<TensorType, float, float>;

  Pools(const ModelPlan& plan, uint64_t seed) {
    std::map<Key, uint64_t> longest;
    for (const TensorPlan& tensor : plan.tensors) {
      uint64_t& values = longest[key_of(tensor)];
      values = std::max(values, tensor.values());
    }
    for (const auto& [key, values] : longest) {
      const auto& [type, deviation, mean] = key;
      const uint64_t block = gguf::tensor_type_info(type).block_values;
      const uint64_t blocks = std::min(values / block, prime_up_to(kPoolValues / block));
      Random random = random_of(seed, gguf::tensor_type_info(type).name);
      pools_[key] = encode_values(*find_encoder(type), random.normals(blocks * block, deviation, mean));
    }
  }

  std::string_view pool_of(const TensorPlan& tensor) const { return pools_.at(key_of(tensor)); }

 private:
  static Key key_of(const TensorPlan& tensor) { return {tensor.type, tensor.deviation, tensor.mean}; }
  std::map<Key, std::string> pools_;
};

// A stretch of the file, and the walk that fills it.
struct Stretch {
  uint64_t begin = 0, end = 0;
  std::string_view pool;
  uint64_t pool_begin = 0;  // where in the pool the stretch begins

  void fill(std::byte* to, uint64_t from, uint64_t bytes) const {
    uint64_t at = (pool_begin + from - begin) % pool.size();
    while (bytes > 0) {
      const uint64_t piece = std::min<uint64_t>(bytes, pool.size() - at);
      std::memcpy(to, pool.data() + at, piece);
      to += piece;
      bytes -= piece;
      at = 0;
    }
  }
};

Failure system_failure(const std::string& path, std::string_view what) {
  const int error = errno;
  const Code code = error == ENOSPC || error == EDQUOT || error == EFBIG ? Code::kResourceExhausted
                    : error == EEXIST                                    ? Code::kAlreadyExists
                    : error == ENOENT || error == ENOTDIR                ? Code::kNotFound
                    : error == EACCES || error == EROFS                  ? Code::kPermissionDenied
                                                                         : Code::kUnknown;
  return fail(code, "{}: {}: {}", path, what, std::strerror(error));
}

// Filled through a mapping, so that threads do not wait for each other as they would in write(). A mapping
// that finds no room ends the process: the room is made sure of first.
Status make_room(int fd, const std::string& path, uint64_t bytes) {
  struct statfs system{};
  if (::fstatfs(fd, &system) != 0) return system_failure(path, "cannot ask for the room there");
  uint64_t room = uint64_t{system.f_bavail} * static_cast<uint64_t>(system.f_bsize);
  const bool in_memory = system.f_type == TMPFS_MAGIC;
  if (in_memory) room = std::min(room, sys::available_memory_bytes());
  if (room < bytes) {
    return fail(Code::kResourceExhausted, "{}: {:.1f} GB are needed, there is room for {:.1f} GB{}", path,
                static_cast<double>(bytes) * 1e-9, static_cast<double>(room) * 1e-9,
                in_memory ? " (in memory)" : "");
  }
  if (::ftruncate(fd, static_cast<off_t>(bytes)) != 0) return system_failure(path, "cannot grow");
  // Where pages are taken as they come anyway, this would only write them twice.
  if (!in_memory && ::fallocate(fd, 0, 0, static_cast<off_t>(bytes)) != 0 && errno != EOPNOTSUPP)
    return system_failure(path, "cannot take the room");
  return {};
}

class FileWriter {
 public:
  FileWriter(int fd, const ModelFileOptions& options, std::vector<Stretch> stretches, uint64_t bytes)
      : fd_(fd), options_(options), stretches_(std::move(stretches)), bytes_(bytes) {}

  Status write() {
    std::vector<std::jthread> threads;
    for (uint32_t i = 1; i < options_.threads; ++i) threads.emplace_back([this] { take_chunks(); });
    take_chunks();
    threads.clear();
    return status_;
  }

 private:
  void take_chunks() {
    for (uint64_t begin = next_.fetch_add(kChunkBytes); begin < bytes_;
         begin = next_.fetch_add(kChunkBytes)) {
      Status done;
      if (options_.cancelled != nullptr && options_.cancelled->load()) {
        done = fail(Code::kCancelled, "{}: cancelled", options_.path);
      } else {
        done = fill_chunk(begin, std::min(begin + kChunkBytes, bytes_));
      }
      if (done.ok()) continue;
      const std::lock_guard lock(mutex_);
      status_ = std::move(done);
      next_.store(bytes_);
    }
  }

  Status fill_chunk(uint64_t begin, uint64_t end) {
    void* mapped =
        ::mmap(nullptr, end - begin, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, static_cast<off_t>(begin));
    if (mapped == MAP_FAILED) return system_failure(options_.path, "cannot map");
    static_cast<void>(::madvise(mapped, end - begin, MADV_HUGEPAGE));
    auto* chunk = static_cast<std::byte*>(mapped);
    auto stretch = std::ranges::upper_bound(stretches_, begin, {}, &Stretch::end);
    for (; stretch != stretches_.end() && stretch->begin < end; ++stretch) {
      const uint64_t from = std::max(begin, stretch->begin), to = std::min(end, stretch->end);
      stretch->fill(chunk + (from - begin), from, to - from);
    }
    ::munmap(mapped, end - begin);
    return {};
  }

  const int fd_;
  const ModelFileOptions& options_;
  const std::vector<Stretch> stretches_;  // in the file's order
  const uint64_t bytes_;
  std::atomic<uint64_t> next_{0};
  std::mutex mutex_;
  Status status_;
};

}  // namespace

Result<uint64_t> write_model_file(const ModelPlan& plan, const ModelFileOptions& options) {
  gguf::FileBuilder table = plan.metadata;
  std::vector<uint64_t> places;
  for (const TensorPlan& tensor : plan.tensors)
    places.push_back(table.place(tensor.name, tensor.type, tensor.dims, tensor.bytes()));
  const std::string head = table.head();
  const uint64_t bytes = head.size() + table.data_bytes();

  const sys::FileDescriptor file(::open(options.path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.valid()) return system_failure(options.path, "cannot create");
  const auto write = [&]() -> Status {
    TRY_OK(make_room(file.get(), options.path, bytes));
    const Pools pools(plan, options.seed);
    std::vector<Stretch> stretches = {{.begin = 0, .end = head.size(), .pool = head, .pool_begin = 0}};
    for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
      const TensorPlan& tensor = plan.tensors[i];
      const uint64_t begin = head.size() + places[i], block = gguf::tensor_type_info(tensor.type).block_bytes;
      const std::string_view pool = pools.pool_of(tensor);
      const uint64_t first = random_of(options.seed, tensor.name).next() % (pool.size() / block);
      stretches.push_back(
          {.begin = begin, .end = begin + tensor.bytes(), .pool = pool, .pool_begin = first * block});
    }
    return FileWriter(file.get(), options, std::move(stretches), bytes).write();
  };
  if (Status written = write(); !written.ok()) {
    ::unlink(options.path.c_str());
    return tl::unexpected(std::move(written));
  }
  return bytes;
}

}  // namespace strata::synthetic
