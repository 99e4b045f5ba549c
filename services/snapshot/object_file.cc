#include "services/snapshot/object_file.h"

#include <sys/stat.h>
#include <zstd.h>

#include <algorithm>
#include <memory>

#include "services/base/check.h"
#include "services/snapshot/byte_codec.h"

namespace strata::snapshot {
namespace {

// "STRSNAP" and a line feed, which a text-mode transfer would damage.
constexpr uint64_t kMagic = 0x0A50414E53525453;
constexpr std::size_t kCheckedHeaderBytes = kObjectHeaderBytes - sizeof(uint64_t);
constexpr int kZstdLevel = 1;
constexpr std::size_t kSampleBytes = std::size_t{64} << 10;
constexpr std::size_t kSampleCount = 4;
constexpr double kWorthwhileRatio = 0.9;

struct FreeCompressor {
  void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
};
struct FreeDecompressor {
  void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
};

std::vector<std::byte> header_bytes(const ObjectHeader& header) {
  ByteWriter out;
  out.put(kMagic);
  out.put(kObjectVersion);
  out.put(static_cast<uint32_t>(header.name.kind));
  out.put(header.name.key);
  out.put(header.name.identity);
  out.put(header.raw_bytes);
  out.put(header.stored_bytes);
  out.put(header.checksum);
  out.put(static_cast<uint32_t>(header.codec));
  const std::array<std::byte, kObjectHeaderBytes> zeros{};
  out.raw(std::span(zeros).first(kCheckedHeaderBytes - out.bytes().size()));
  out.put(checksum64(out.bytes()));
  return std::move(out).take();
}

// Hands the bytes to write_at in slices, each announced to the pace.
class SliceWriter {
 public:
  SliceWriter(DiskFiles& files, int fd, const std::string& path, uint64_t offset, const Pace& pace)
      : files_(files), fd_(fd), path_(path), offset_(offset), pace_(pace) {}
  Status write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const auto slice = bytes.first(std::min(bytes.size(), kWriteSliceBytes));
      if (pace_) TRY_OK(pace_(slice.size()));
      TRY_OK(files_.write_at(fd_, slice, offset_ + written_, path_));
      written_ += slice.size();
      bytes = bytes.subspan(slice.size());
    }
    return {};
  }
  uint64_t written() const { return written_; }

 private:
  DiskFiles& files_;
  int fd_;
  const std::string& path_;
  uint64_t offset_;
  const Pace& pace_;
  uint64_t written_ = 0;
};

Status write_compressed(SliceWriter& out, std::span<const std::byte> raw) {
  const std::unique_ptr<ZSTD_CCtx, FreeCompressor> context(ZSTD_createCCtx());
  CHECK(context != nullptr &&
        ZSTD_isError(ZSTD_CCtx_setParameter(context.get(), ZSTD_c_compressionLevel, kZstdLevel)) == 0);
  std::vector<std::byte> buffer(ZSTD_CStreamOutSize());
  ZSTD_inBuffer input{raw.data(), raw.size(), 0};
  for (std::size_t left = 1; left != 0;) {
    ZSTD_outBuffer output{buffer.data(), buffer.size(), 0};
    left = ZSTD_compressStream2(context.get(), &output, &input, ZSTD_e_end);
    if (ZSTD_isError(left) != 0) return fail(Code::kInternal, "zstd: {}", ZSTD_getErrorName(left));
    TRY_OK(out.write(std::span(buffer).first(output.pos)));
  }
  return {};
}

Status read_compressed(int fd, const std::string& path, uint64_t offset, uint64_t stored_bytes,
                       std::span<std::byte> raw) {
  const std::unique_ptr<ZSTD_DCtx, FreeDecompressor> context(ZSTD_createDCtx());
  CHECK(context != nullptr);
  std::vector<std::byte> buffer(std::min<uint64_t>(stored_bytes, kWriteSliceBytes));
  ZSTD_outBuffer output{raw.data(), raw.size(), 0};
  std::size_t more = 1;
  for (uint64_t done = 0; done < stored_bytes;) {
    const auto slice = std::span(buffer).first(std::min<uint64_t>(buffer.size(), stored_bytes - done));
    TRY_OK(read_exactly(fd, slice, offset + done, path));
    ZSTD_inBuffer input{slice.data(), slice.size(), 0};
    while (input.pos < input.size) {
      const std::size_t before = input.pos + output.pos;
      more = ZSTD_decompressStream(context.get(), &output, &input);
      // Without progress the frame holds more than the header says.
      if (ZSTD_isError(more) != 0 || (more == 0 && input.pos < input.size) ||
          input.pos + output.pos == before) {
        return fail(Code::kDataLoss, "{}: compressed bytes at {} are damaged", path,
                    offset + done + input.pos);
      }
    }
    done += slice.size();
  }
  if (more != 0 || output.pos != raw.size()) {
    return fail(Code::kDataLoss, "{}: {} bytes instead of {} after decompressing", path, output.pos,
                raw.size());
  }
  return {};
}

}  // namespace

bool compression_pays(std::span<const std::byte> raw) {
  // Pieces of an object that is hardly longer than them would overlap: it is asked about as a whole.
  const bool whole = raw.size() <= kSampleBytes * kSampleCount;
  const std::size_t count = whole ? 1 : kSampleCount;
  const std::size_t length = whole ? raw.size() : kSampleBytes;
  if (length == 0) return false;
  std::vector<std::byte> buffer(ZSTD_compressBound(length));
  std::size_t compressed = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t at = count == 1 ? 0 : i * (raw.size() - length) / (count - 1);
    const std::size_t size = ZSTD_compress(buffer.data(), buffer.size(), raw.data() + at, length, kZstdLevel);
    if (ZSTD_isError(size) != 0) return false;
    compressed += size;
  }
  return static_cast<double>(compressed) <= kWorthwhileRatio * static_cast<double>(count * length);
}

Result<uint64_t> write_object(DiskFiles& files, int fd, const std::string& path, uint64_t offset,
                              const ObjectToWrite& object, const Pace& pace) {
  const bool compress = object.may_compress && compression_pays(object.raw);
  SliceWriter out(files, fd, path, offset + kObjectHeaderBytes, pace);
  TRY_OK(compress ? write_compressed(out, object.raw) : out.write(object.raw));
  // Last, because the stored size is known only now; the file has no name yet, so nobody sees it without.
  const auto header = header_bytes({.name = object.name,
                                    .raw_bytes = object.raw.size(),
                                    .stored_bytes = out.written(),
                                    .checksum = object.checksum,
                                    .codec = compress ? Codec::kZstd : Codec::kNone});
  TRY_OK(files.write_at(fd, header, offset, path));
  return kObjectHeaderBytes + out.written();
}

Result<ObjectHeader> read_object_header(int fd, const std::string& path, uint64_t offset) {
  std::array<std::byte, kObjectHeaderBytes> bytes{};
  TRY_OK(read_exactly(fd, bytes, offset, path));
  ByteReader in(bytes);
  const auto magic = in.get<uint64_t>();
  const auto version = in.get<uint32_t>();
  if (magic != kMagic) return fail(Code::kDataLoss, "{}: no object of a snapshot at byte {}", path, offset);
  if (version != kObjectVersion) {
    return fail(Code::kDataLoss, "{}: version {}, expected {}", path, version, kObjectVersion);
  }
  uint64_t checksum = 0;
  std::memcpy(&checksum, bytes.data() + kCheckedHeaderBytes, sizeof checksum);
  if (checksum != checksum64(std::span(bytes).first(kCheckedHeaderBytes))) {
    return fail(Code::kDataLoss, "{}: header at byte {} is damaged", path, offset);
  }
  ObjectHeader header;
  header.name.kind = static_cast<ObjectKind>(in.get<uint32_t>());
  header.name.key = in.get_hash();
  header.name.identity = in.get_hash();
  header.raw_bytes = in.get<uint64_t>();
  header.stored_bytes = in.get<uint64_t>();
  header.checksum = in.get<uint64_t>();
  header.codec = static_cast<Codec>(in.get<uint32_t>());
  const bool sizes_agree = header.codec != Codec::kNone || header.raw_bytes == header.stored_bytes;
  if (header.codec > Codec::kZstd || !sizes_agree) {
    return fail(Code::kDataLoss, "{}: codec {} with {} bytes for {}", path,
                static_cast<uint32_t>(header.codec), header.stored_bytes, header.raw_bytes);
  }
  return header;
}

Status read_object_bytes(int fd, const std::string& path, uint64_t offset, const ObjectHeader& header,
                         std::span<std::byte> raw) {
  if (raw.size() != header.raw_bytes) {
    return fail(Code::kDataLoss, "{}: holds {} bytes, expected {}", path, header.raw_bytes, raw.size());
  }
  const uint64_t begin = offset + kObjectHeaderBytes;
  TRY_OK(header.codec == Codec::kNone ? read_exactly(fd, raw, begin, path)
                                      : read_compressed(fd, path, begin, header.stored_bytes, raw));
  const uint64_t found = checksum64(raw);
  if (found != header.checksum) {
    return fail(Code::kDataLoss, "{}: checksum {:016x}, expected {:016x}", path, found, header.checksum);
  }
  return {};
}

Status check_object_name(const ObjectHeader& header, const ObjectName& expected, const std::string& path) {
  if (header.name.kind != expected.kind) {
    return fail(Code::kDataLoss, "{}: object of kind {}, expected {}", path,
                static_cast<uint32_t>(header.name.kind), static_cast<uint32_t>(expected.kind));
  }
  if (header.name.key != expected.key) {
    return fail(Code::kDataLoss, "{}: key {}, expected {}", path, header.name.key.text(),
                expected.key.text());
  }
  if (header.name.identity != expected.identity) {
    return fail(Code::kDataLoss, "{}: identity {}, expected {}", path, header.name.identity.text(),
                expected.identity.text());
  }
  return {};
}

namespace {

// The header of the one object that the file holds, whose end is the file's.
Result<ObjectHeader> only_header(int fd, const std::string& path, const ObjectName& expected) {
  TRY(const ObjectHeader header, read_object_header(fd, path, 0));
  TRY_OK(check_object_name(header, expected, path));
  struct stat info{};
  const bool known = fstat(fd, &info) == 0;
  if (!known || static_cast<uint64_t>(info.st_size) - kObjectHeaderBytes != header.stored_bytes) {
    return fail(Code::kDataLoss, "{}: {} bytes, its header speaks of {} behind itself", path, info.st_size,
                header.stored_bytes);
  }
  return header;
}

}  // namespace

Status read_object_file(const std::string& path, const ObjectName& expected, std::span<std::byte> raw) {
  TRY(const sys::FileDescriptor fd, open_to_read(path));
  TRY(const ObjectHeader header, only_header(fd.get(), path, expected));
  return read_object_bytes(fd.get(), path, 0, header, raw);
}

Result<std::vector<std::byte>> read_object_file(const std::string& path, const ObjectName& expected,
                                                uint64_t bytes_max) {
  TRY(const sys::FileDescriptor fd, open_to_read(path));
  TRY(const ObjectHeader header, only_header(fd.get(), path, expected));
  if (header.raw_bytes > bytes_max) {
    return fail(Code::kDataLoss, "{}: speaks of {} bytes, at most {} are possible", path, header.raw_bytes,
                bytes_max);
  }
  std::vector<std::byte> raw(header.raw_bytes);
  TRY_OK(read_object_bytes(fd.get(), path, 0, header, raw));
  return raw;
}

}  // namespace strata::snapshot
