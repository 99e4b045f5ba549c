#include "services/shm/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <new>
#include <random>
#include <utility>

#include "services/sys/errno_status.h"
#include "services/sys/process.h"

namespace strata::shm {
namespace {

constexpr const char* kShmFolder = "/dev/shm";

Failure system_failure(const std::string& name, const char* what, int error) {
  return fail(sys::errno_code(error), "shared memory {}: {}: {}", name, what, std::strerror(error));
}

// Takes all the pages now. A segment that is only as long as ftruncate says ends some later write with SIGBUS
// when /dev/shm is full.
Status reserve_pages(int fd, const std::string& name, uint64_t bytes) {
  int error = 0;
  do {
    error = posix_fallocate(fd, 0, static_cast<off_t>(bytes));
  } while (error == EINTR);
  if (error == 0) return {};
  if (error != ENOSPC && error != EFBIG) return system_failure(name, "posix_fallocate", error);
  struct statvfs room{};
  const uint64_t free_bytes = fstatvfs(fd, &room) == 0 ? uint64_t{room.f_bavail} * room.f_frsize : 0;
  return fail(Code::kResourceExhausted,
              "shared memory {}: needs {} bytes, {} has {} free; enlarge it (docker: --shm-size)", name,
              bytes, kShmFolder, free_bytes);
}

Result<std::byte*> map_segment(int fd, const std::string& name, uint64_t bytes) {
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) return system_failure(name, "mmap", errno);
  return static_cast<std::byte*>(base);
}

Status check_header(const SegmentHeader& header, const std::string& name, const SegmentHeader& expected) {
  const auto differs = [&](const char* field, uint64_t found, uint64_t wanted) {
    return fail(Code::kFailedPrecondition, "shared memory {}: {} is {:#x}, expected {:#x}", name, field,
                found, wanted);
  };
  if (header.magic != expected.magic) return differs("magic", header.magic, expected.magic);
  if (header.kind != expected.kind) return differs("kind", header.kind, expected.kind);
  if (header.layout_version != expected.layout_version) {
    return differs("layout version", header.layout_version, expected.layout_version);
  }
  if (header.instance_id != expected.instance_id)
    return differs("instance", header.instance_id, expected.instance_id);
  if (header.bytes != expected.bytes) return differs("size", header.bytes, expected.bytes);
  return {};
}

}  // namespace

Result<Segment> Segment::create(const std::string& name, SegmentKind kind, uint32_t layout_version,
                                uint64_t bytes, SegmentPages pages) {
  if (bytes < sizeof(SegmentHeader) || bytes > static_cast<uint64_t>(INT64_MAX)) {
    return fail(Code::kInvalidArgument, "shared memory {}: {} bytes is no size for a segment", name, bytes);
  }
  sys::FileDescriptor fd(shm_open(name.c_str(), O_CREAT | O_EXCL | O_RDWR, 0600));
  if (!fd.valid()) return system_failure(name, "shm_open", errno);
  // From here on the segment's destructor removes the name when something fails.
  Segment segment;
  segment.name_ = name;
  segment.owner_ = true;
  if (pages == SegmentPages::kOnDemand && ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return system_failure(name, "ftruncate", errno);
  }
  TRY_OK(reserve_pages(fd.get(), name, pages == SegmentPages::kOnDemand ? sizeof(SegmentHeader) : bytes));
  TRY(segment.base_, map_segment(fd.get(), name, bytes));
  segment.bytes_ = bytes;
  // Nobody knows the name before the owner hands it over, so plain stores will do.
  new (segment.base_) SegmentHeader{.magic = kSegmentMagic,
                                    .kind = static_cast<uint32_t>(kind),
                                    .layout_version = layout_version,
                                    .instance_id = random_instance_id(),
                                    .bytes = bytes,
                                    .owner_pid = static_cast<uint32_t>(getpid())};
  return segment;
}

Result<Segment> Segment::attach(const std::string& name, SegmentKind kind, uint32_t layout_version,
                                uint64_t bytes, uint64_t instance_id) {
  sys::FileDescriptor fd(shm_open(name.c_str(), O_RDWR, 0));
  if (!fd.valid()) return system_failure(name, "shm_open", errno);
  struct stat info{};
  if (fstat(fd.get(), &info) != 0) return system_failure(name, "fstat", errno);
  if (info.st_uid != geteuid()) {
    return fail(Code::kPermissionDenied, "shared memory {}: belongs to user {}", name, info.st_uid);
  }
  // Before mapping: a page behind the end of the file is a SIGBUS.
  if (bytes < sizeof(SegmentHeader) || static_cast<uint64_t>(info.st_size) != bytes) {
    return fail(Code::kFailedPrecondition, "shared memory {}: has {} bytes, expected {}", name, info.st_size,
                bytes);
  }
  Segment segment;
  segment.name_ = name;
  TRY(segment.base_, map_segment(fd.get(), name, bytes));
  segment.bytes_ = bytes;
  TRY_OK(check_header(*segment.header(), name,
                      {.magic = kSegmentMagic,
                       .kind = static_cast<uint32_t>(kind),
                       .layout_version = layout_version,
                       .instance_id = instance_id,
                       .bytes = bytes}));
  return segment;
}

Segment::Segment(Segment&& other) noexcept
    : name_(std::move(other.name_)),
      base_(std::exchange(other.base_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      owner_(std::exchange(other.owner_, false)) {}

Segment& Segment::operator=(Segment&& other) noexcept {
  std::swap(name_, other.name_);
  std::swap(base_, other.base_);
  std::swap(bytes_, other.bytes_);
  std::swap(owner_, other.owner_);
  return *this;
}

Segment::~Segment() {
  if (base_ != nullptr) munmap(base_, bytes_);
  unlink();
}

void Segment::unlink() {
  if (std::exchange(owner_, false)) shm_unlink(name_.c_str());
}

std::string run_id(const std::string& run_dir) {
  std::error_code error;
  std::filesystem::path path = std::filesystem::weakly_canonical(run_dir, error);
  if (error) path = run_dir;
  const std::string text = path.string();
  return fmt::format("{:08x}", static_cast<uint32_t>(XXH3_64bits(text.data(), text.size())));
}

std::string segment_name(const std::string& run_id, std::string_view what, uint64_t instance) {
  return fmt::format("/strata-{}-{}-{:016x}", run_id, what, instance);
}

namespace {

// Removes the run's segments for which stale(file name) is true.
template <class Stale>
uint32_t remove_segments(const std::string& run_id, const Stale& stale) {
  const std::string prefix = fmt::format("/strata-{}-", run_id);
  uint32_t removed = 0;
  std::error_code error;
  std::filesystem::directory_iterator entry(kShmFolder, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string name = fmt::format("/{}", entry->path().filename().string());
    if (name.starts_with(prefix) && stale(name) && shm_unlink(name.c_str()) == 0) ++removed;
  }
  return removed;
}

bool owner_is_dead(const std::string& name) {
  sys::FileDescriptor fd(shm_open(name.c_str(), O_RDONLY, 0));
  SegmentHeader header;
  // One that has no header yet is being made at this moment.
  if (!fd.valid() || pread(fd.get(), &header, sizeof header, 0) != sizeof header ||
      header.magic != kSegmentMagic) {
    return false;
  }
  return kill(static_cast<pid_t>(header.owner_pid), 0) != 0 && errno == ESRCH;
}

}  // namespace

uint32_t remove_stale_segments(const std::string& run_id) {
  return remove_segments(run_id, [](const std::string&) { return true; });
}

uint32_t remove_segments_of_dead_owners(const std::string& run_id) {
  return remove_segments(run_id, owner_is_dead);
}

uint64_t random_instance_id() {
  std::random_device device;
  // 0 is what a protobuf field holds that nobody has filled.
  uint64_t id = 0;
  while (id == 0) id = uint64_t{device()} << 32 | device();
  return id;
}

}  // namespace strata::shm
