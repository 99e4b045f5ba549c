// Opening a folder of the disk tier: what is there, what is whole, and what a crash left behind.

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <unordered_set>
#include <utility>

#include "services/base/check.h"
#include "services/snapshot/disk_tier.h"
#include "services/snapshot/ram_pool.h"
#include "services/sys/errno_status.h"

namespace strata::snapshot {
namespace {

namespace fs = std::filesystem;

constexpr const char* kStoreFile = "store";
constexpr uint64_t kStoreFileBytesMax = uint64_t{4} << 20;

// A folder for this user alone.
Status make_private_folder(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return fail(sys::errno_code(errno), "{}: cannot be made: {}", path, std::strerror(errno));
  }
  struct stat info{};
  if (::lstat(path.c_str(), &info) != 0)
    return fail(sys::errno_code(errno), "{}: {}", path, std::strerror(errno));
  if (!S_ISDIR(info.st_mode)) return fail(Code::kInvalidArgument, "{}: is no folder", path);
  if (info.st_uid != ::geteuid())
    return fail(Code::kPermissionDenied, "{}: belongs to user {}", path, info.st_uid);
  if ((info.st_mode & 0777U) != 0700U && ::chmod(path.c_str(), 0700) != 0) {
    return fail(sys::errno_code(errno), "{}: cannot be made private: {}", path, std::strerror(errno));
  }
  return {};
}

std::function<uint64_t()> free_bytes_of(const std::string& folder) {
  return [folder]() -> uint64_t {
    struct statvfs room{};
    return ::statvfs(folder.c_str(), &room) == 0 ? uint64_t{room.f_bavail} * room.f_frsize : 0;
  };
}

uint64_t bytes_below(const fs::path& folder) {
  uint64_t bytes = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code unreadable;
    const uint64_t size = entry->is_regular_file(unreadable) ? entry->file_size(unreadable) : 0;
    if (!unreadable) bytes += extent_footprint(size);
  }
  return bytes;
}

}  // namespace

struct DiskTier::FoundFiles {
  struct Object {
    uint64_t bytes = 0;
    bool used = false;
  };
  std::unordered_map<std::string, Object> objects;  // by path; .fixed, .tail, .page
  std::vector<SnapshotId> manifests;
  std::vector<std::string> unfinished;  // *.tmp
  uint64_t foreign = 0;
};

DiskTier::DiskTier(DiskTierOptions options, FolderLock lock)
    : options_(std::move(options)),
      lock_(std::move(lock)),
      identity_digest_(digest(options_.identity)),
      folder_(fmt::format("{}/{}", options_.folder, identity_digest_.text())),
      catalog_(options_.identity.page_tokens, options_.value),
      evictions_(options_.evictions) {}

Result<std::unique_ptr<DiskTier>> DiskTier::open(DiskTierOptions options) {
  TRY_OK(check_identity(options.identity));
  CHECK(options.now_ms != nullptr);
  if (!options.files) options.files = std::make_shared<DiskFiles>();
  if (!options.free_bytes) options.free_bytes = free_bytes_of(options.folder);
  TRY_OK(make_private_folder(options.folder));
  TRY(FolderLock lock, FolderLock::take(options.folder, options.owner));
  std::unique_ptr<DiskTier> tier(new DiskTier(std::move(options), std::move(lock)));
  TRY_OK(make_private_folder(tier->folder_));
  tier->find_other_identities();
  TRY_OK(tier->read_or_make_store_file());
  FoundFiles found = tier->find_files();
  tier->counters_.foreign_files += found.foreign;
  TRY_OK(tier->load(found));
  tier->remove_leftovers(found);
  // The budget may be smaller than last time. What cannot be removed is a fault of the next write.
  static_cast<void>(tier->make_room(0));
  return tier;
}

void DiskTier::find_other_identities() {
  std::error_code error;
  for (fs::directory_iterator entry(options_.folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    std::error_code unreadable;
    const bool is_folder = entry->is_directory(unreadable) && !entry->is_symlink(unreadable);
    if (name == kLockFile || name == identity_digest_.text()) continue;
    if (!is_folder || !Hash128::parse(name)) {
      ++counters_.foreign_files;
      continue;
    }
    struct stat info{};
    const std::string path = entry->path().string();
    const int64_t changed = ::stat(path.c_str(), &info) == 0 ? int64_t{info.st_mtime} : 0;
    others_.push_back({.path = path, .bytes = bytes_below(path), .changed = changed});
  }
  counters_.other_identities = others_.size();
}

ObjectName DiskTier::manifest_name(const SnapshotId& id) const {
  return {.kind = ObjectKind::kManifest, .key = id, .identity = identity_digest_};
}

Result<Manifest> DiskTier::read_manifest_file(const SnapshotId& id) const {
  const ObjectName name = manifest_name(id);
  TRY(const std::vector<std::byte> bytes, read_object_file(path_of(name), name, kManifestBytesMax));
  return parse_manifest(bytes, options_.identity);
}

// Without it the keys of the manifests could not be made again, and no page be shared with what is stored;
// but every manifest has the seed, too.
Status DiskTier::read_or_make_store_file() {
  const std::string path = folder_ + "/" + kStoreFile;
  const ObjectName name{.kind = ObjectKind::kStore, .key = {}, .identity = identity_digest_};
  if (const auto stored = read_object_file(path, name, kStoreFileBytesMax);
      stored && stored->size() >= seed_.size()) {
    std::copy_n(stored->begin(), seed_.size(), seed_.begin());
    return {};
  }
  seed_ = options_.new_seed;
  for (const SnapshotId& id : find_files().manifests) {
    if (const auto manifest = read_manifest_file(id)) {
      seed_ = manifest->seed;
      break;
    }
  }
  std::vector<std::byte> text(seed_.begin(), seed_.end());
  const auto identity = serialize(options_.identity);
  text.insert(text.end(), identity.begin(), identity.end());
  DiskFiles& files = *options_.files;
  const ObjectToWrite object{.name = name, .raw = text, .checksum = checksum64(text), .may_compress = false};
  TRY([[maybe_unused]] const uint64_t bytes,
      write_new_file(files, path, [&](int fd, const std::string& temporary) {
        return write_object(files, fd, temporary, 0, object, {});
      }));
  return files.sync_folder(folder_);
}

DiskTier::FoundFiles DiskTier::find_files() {
  FoundFiles found;
  std::error_code error;
  for (fs::directory_iterator entry(folder_, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code unreadable;
    const std::string path = entry->path().string();
    const std::string name = entry->path().filename().string();
    const bool regular = entry->is_regular_file(unreadable) && !entry->is_symlink(unreadable);
    const std::string suffix = entry->path().extension().string();
    const auto key = Hash128::parse(entry->path().stem().string());
    if (name == kStoreFile || name.starts_with(kIndexFile)) continue;
    if (regular && suffix == kTemporarySuffix) {
      found.unfinished.push_back(path);
    } else if (regular && key && suffix == ".snapshot") {
      found.manifests.push_back(*key);
    } else if (regular && key && (suffix == ".fixed" || suffix == ".tail" || suffix == ".page")) {
      const uint64_t bytes = entry->file_size(unreadable);
      found.objects.emplace(path, FoundFiles::Object{.bytes = unreadable ? 0 : bytes});
    } else {
      ++found.foreign;
    }
  }
  return found;
}

Result<std::vector<Manifest>> DiskTier::indexed_manifests() {
  std::vector<Manifest> manifests;
  const auto read = [&]() -> Status {
    TRY(index_, DiskIndex::open(folder_));
    TRY_OK(index_->load([&](Manifest manifest) {
      manifest.seed = seed_;
      manifests.push_back(std::move(manifest));
    }));
    for (const Manifest& manifest : manifests) TRY_OK(check_manifest(manifest, options_.identity));
    return {};
  };
  const Status status = read();
  if (status.ok()) return manifests;
  // Only what damage can explain: a full disk or a missing permission would be no better with a new one.
  if (status.code() != Code::kDataLoss && status.code() != Code::kInternal) return Failure(Status(status));
  index_.reset();
  DiskIndex::remove_files(folder_);
  TRY(index_, DiskIndex::open(folder_));
  counters_.index_rebuilt = 1;
  return std::vector<Manifest>();
}

Status DiskTier::load(FoundFiles& found) {
  TRY(std::vector<Manifest> manifests, indexed_manifests());
  const std::unordered_set<SnapshotId, Hash128Hasher> in_folder(found.manifests.begin(),
                                                                found.manifests.end());
  std::unordered_set<SnapshotId, Hash128Hasher> known;
  for (const Manifest& manifest : manifests) known.insert(manifest.id);
  // The folder is right, whatever the index says.
  bool index_is_right =
      std::erase_if(manifests, [&](const Manifest& m) { return !in_folder.contains(m.id); }) == 0;
  for (const SnapshotId& id : found.manifests) {
    if (known.contains(id)) continue;
    index_is_right = false;
    auto manifest = read_manifest_file(id);
    if (manifest && manifest->id == id && manifest->seed == seed_) {
      manifests.push_back(std::move(*manifest));
    } else {
      ++counters_.damaged;
      TRY_OK(options_.files->remove(path_of(manifest_name(id))));
    }
  }
  std::sort(manifests.begin(), manifests.end(), [](const Manifest& a, const Manifest& b) {
    return std::tie(a.created_ms, a.id) < std::tie(b.created_ms, b.id);
  });
  std::erase_if(manifests, [&](const Manifest& manifest) {
    if (admit(manifest, found)) return false;
    index_is_right = false;
    ++counters_.damaged;
    static_cast<void>(options_.files->remove(path_of(manifest_name(manifest.id))));
    return true;
  });
  if (index_is_right) return {};
  index_.reset();
  DiskIndex::remove_files(folder_);
  TRY(index_, DiskIndex::open(folder_));
  for (const Manifest& manifest : manifests) TRY_OK(index_->put(manifest, options_.identity.page_tokens));
  return {};
}

// False: one of its files is not there.
bool DiskTier::admit(const Manifest& manifest, FoundFiles& found) {
  std::vector<FoundFiles::Object*> files;
  const auto find = [&](ObjectKind kind, const Hash128& key) -> uint64_t {
    const auto file = found.objects.find(path_of({.kind = kind, .key = key, .identity = identity_digest_}));
    if (file == found.objects.end() || file->second.bytes < kObjectHeaderBytes) return 0;
    files.push_back(&file->second);
    return extent_footprint(file->second.bytes);
  };
  const uint64_t fixed_bytes = find(ObjectKind::kFixed, manifest.id);
  const uint64_t tail_bytes = manifest.tail_bytes > 0 ? find(ObjectKind::kTail, manifest.id) : 0;
  if (fixed_bytes == 0 || (manifest.tail_bytes > 0 && tail_bytes == 0)) return false;
  const uint64_t manifest_bytes = extent_footprint(kObjectHeaderBytes + serialize(manifest).size());
  EntryToInsert entry = entry_to_insert(manifest, fixed_bytes + tail_bytes + manifest_bytes);
  for (PageToInsert& page : entry.pages) {
    page.bytes = find(ObjectKind::kPage, page.key);
    if (page.bytes == 0) return false;
  }
  for (FoundFiles::Object* file : files) file->used = true;
  catalog_.insert(std::move(entry));
  return true;
}

void DiskTier::remove_leftovers(const FoundFiles& found) {
  const auto remove = [&](const std::string& path) {
    if (options_.files->remove(path).ok()) ++counters_.leftovers;
  };
  for (const std::string& path : found.unfinished) remove(path);
  for (const auto& [path, object] : found.objects)
    if (!object.used) remove(path);
}

}  // namespace strata::snapshot
