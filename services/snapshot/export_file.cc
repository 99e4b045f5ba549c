#include "services/snapshot/export_file.h"

#include <sys/stat.h>

#include <utility>

#include "services/snapshot/object_file.h"

namespace strata::snapshot {
namespace {

constexpr uint64_t kIdentityBytesMax = uint64_t{4} << 20;

// Objects one after the other into a file.
class ExportWriter {
 public:
  ExportWriter(DiskFiles& files, int fd, const std::string& path, const Hash128& identity)
      : files_(files), fd_(fd), path_(path), identity_(identity) {}
  Status put(ObjectKind kind, const Hash128& key, std::span<const std::byte> raw) {
    const ObjectToWrite object{
        .name = {.kind = kind, .key = key, .identity = identity_}, .raw = raw, .checksum = checksum64(raw)};
    TRY(const uint64_t bytes, write_object(files_, fd_, path_, bytes_, object, {}));
    bytes_ += bytes;
    return {};
  }
  uint64_t bytes() const { return bytes_; }

 private:
  DiskFiles& files_;
  int fd_;
  const std::string& path_;
  Hash128 identity_;
  uint64_t bytes_ = 0;
};

class ExportReader {
 public:
  ExportReader(sys::FileDescriptor fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}
  const std::string& path() const { return path_; }
  // The object that comes next must be of this kind.
  Status expect(ObjectKind kind) {
    TRY(header_, read_object_header(fd_.get(), path_, offset_));
    if (header_.name.kind != kind) {
      return fail(Code::kDataLoss, "{}: object of kind {} at byte {}, expected {}", path_,
                  static_cast<uint32_t>(header_.name.kind), offset_, static_cast<uint32_t>(kind));
    }
    return {};
  }
  const ObjectHeader& header() const { return header_; }
  Status read(std::span<std::byte> into) {
    TRY_OK(read_object_bytes(fd_.get(), path_, offset_, header_, into));
    skip();
    return {};
  }
  Result<std::vector<std::byte>> read(uint64_t bytes_max) {
    if (header_.raw_bytes > bytes_max) {
      return fail(Code::kDataLoss, "{}: object of {} bytes at byte {}, at most {} are possible", path_,
                  header_.raw_bytes, offset_, bytes_max);
    }
    std::vector<std::byte> raw(header_.raw_bytes);
    TRY_OK(read(raw));
    return raw;
  }
  void skip() { offset_ += kObjectHeaderBytes + header_.stored_bytes; }
  uint64_t offset() const { return offset_; }

 private:
  sys::FileDescriptor fd_;
  std::string path_;
  ObjectHeader header_;
  uint64_t offset_ = 0;
};

std::string difference(const StateIdentity& theirs, const StateIdentity& ours) {
  const auto text = [](std::string_view field, const auto& a, const auto& b) {
    return fmt::format("{} is {}, here {}", field, a, b);
  };
  if (theirs.model_fingerprint != ours.model_fingerprint)
    return text("model", theirs.model_fingerprint, ours.model_fingerprint);
  if (theirs.numerics != ours.numerics) return text("numerics", theirs.numerics, ours.numerics);
  if (theirs.kv_format != ours.kv_format) return text("KV format", theirs.kv_format, ours.kv_format);
  if (theirs.layout_version != ours.layout_version)
    return text("layout version", theirs.layout_version, ours.layout_version);
  if (theirs.page_tokens != ours.page_tokens) return text("page", theirs.page_tokens, ours.page_tokens);
  if (theirs.options != ours.options) return text("options", theirs.options, ours.options);
  return "sizes or parts differ";
}

}  // namespace

Result<uint64_t> export_snapshot(const std::string& path, const StateIdentity& identity,
                                 const SnapshotContent& content, DiskFiles& files) {
  struct stat info{};
  if (::lstat(path.c_str(), &info) == 0) return fail(Code::kAlreadyExists, "{}: exists", path);
  Manifest manifest = content.manifest;
  manifest.seed = {};
  const auto fill = [&](int fd, const std::string& temporary) -> Result<uint64_t> {
    ExportWriter out(files, fd, temporary, digest(identity));
    TRY_OK(out.put(ObjectKind::kIdentity, {}, serialize(identity)));
    TRY_OK(out.put(ObjectKind::kManifest, manifest.id, serialize(manifest)));
    TRY_OK(out.put(ObjectKind::kFixed, manifest.id, content.fixed));
    for (std::size_t i = 0; i < content.pages.size(); ++i)
      TRY_OK(out.put(ObjectKind::kPage, manifest.page_keys[i], content.pages[i]));
    if (!content.tail.empty()) TRY_OK(out.put(ObjectKind::kTail, manifest.id, content.tail));
    TRY_OK(out.put(ObjectKind::kEnd, manifest.id, {}));
    return out.bytes();
  };
  return write_new_file(files, path, fill);
}

struct ImportFile::Impl {
  ExportReader in;  // stands at the fixed part
  Manifest manifest = {};
};

ImportFile::ImportFile(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ImportFile::ImportFile(ImportFile&& other) noexcept = default;
ImportFile& ImportFile::operator=(ImportFile&& other) noexcept = default;
ImportFile::~ImportFile() = default;

Result<ImportFile> ImportFile::open(const std::string& path, const StateIdentity& identity) {
  TRY(sys::FileDescriptor fd, open_to_read(path));
  auto impl = std::make_unique<Impl>(Impl{.in = ExportReader(std::move(fd), path)});
  ExportReader& in = impl->in;
  TRY_OK(in.expect(ObjectKind::kIdentity));
  TRY(const std::vector<std::byte> identity_bytes, in.read(kIdentityBytesMax));
  TRY(const StateIdentity theirs, parse_identity(identity_bytes));
  if (theirs != identity) {
    return fail(Code::kFailedPrecondition, "{}: a snapshot for another setting: {}", path,
                difference(theirs, identity));
  }
  TRY_OK(in.expect(ObjectKind::kManifest));
  TRY(const std::vector<std::byte> manifest_bytes, in.read(kManifestBytesMax));
  TRY(impl->manifest, parse_manifest(manifest_bytes, identity));
  return ImportFile(std::move(impl));
}

Result<Reservation> ImportFile::reserve(SnapshotStore& store, const Hash128& name_space,
                                        uint64_t owner) const {
  const Manifest& manifest = impl_->manifest;
  const auto tokens = unpack_tokens(manifest.words);
  const auto generated = unpack_generated(manifest.words);
  return store.reserve({.identity = store.identity_digest(),
                        .name_space = name_space.is_zero() ? manifest.name_space : name_space,
                        .tokens = tokens,
                        .generated = generated,
                        .kind = manifest.kind,
                        .cost_seconds = manifest.cost_seconds,
                        .tail_bytes = manifest.tail_bytes,
                        .owner = owner});
}

Result<CopyChecksums> ImportFile::read(const SnapshotStore& store, const Reservation& reservation) {
  ExportReader& in = impl_->in;
  const Manifest& manifest = impl_->manifest;
  TRY_OK(in.expect(ObjectKind::kFixed));
  const auto fixed = store.pool().bytes(reservation.fixed);
  TRY_OK(in.read(fixed));
  TRY_OK(check_parts(store.identity(), fixed, manifest.part_checksums));
  CopyChecksums checksums{.parts = manifest.part_checksums, .pages = {}};
  const auto page_count = static_cast<uint32_t>(manifest.page_keys.size());
  auto wanted = reservation.pages.begin();
  for (uint32_t page = 0; page < page_count + (manifest.tail_bytes > 0 ? 1 : 0); ++page) {
    const bool is_tail = page == page_count;
    const uint64_t checksum = is_tail ? manifest.tail_checksum : manifest.page_checksums[page];
    TRY_OK(in.expect(is_tail ? ObjectKind::kTail : ObjectKind::kPage));
    if (in.header().checksum != checksum) {
      return fail(Code::kDataLoss, "{}: page {} at byte {} is not the manifest's", in.path(), page,
                  in.offset());
    }
    if (page < reservation.shared_pages) {
      in.skip();  // the same bytes are here
      continue;
    }
    TRY_OK(in.read(store.pool().bytes((wanted++)->extent)));
    checksums.pages.push_back(checksum);
  }
  TRY_OK(in.expect(ObjectKind::kEnd));
  return checksums;
}

Result<SnapshotInfo> import_snapshot(const std::string& path, SnapshotStore& store,
                                     const Hash128& name_space) {
  TRY(ImportFile file, ImportFile::open(path, store.identity()));
  TRY(const Reservation reservation, file.reserve(store, name_space, 0));
  auto checksums = file.read(store, reservation);
  if (!checksums) {
    TRY_OK(store.abandon(reservation.ticket));
    return forward_failure(std::move(checksums));
  }
  return store.commit(reservation.ticket, *checksums);
}

}  // namespace strata::snapshot
