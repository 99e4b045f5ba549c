#pragma once
// One object of a snapshot in a file: a header that says what it is and whose, then its bytes, as they are or
// as one zstd frame. Layout in docs/snapshot-format.md; little-endian. A file of the disk tier holds one
// object, an exported snapshot several.

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "services/base/status.h"
#include "services/snapshot/disk_files.h"
#include "services/snapshot/hash128.h"

namespace strata::snapshot {

inline constexpr uint32_t kObjectVersion = 1;
inline constexpr std::size_t kObjectHeaderBytes = 128;

enum class ObjectKind : uint32_t {
  kFixed = 1,
  kTail = 2,
  kPage = 3,
  kManifest = 4,
  kStore = 5,
  kIdentity = 6,
  kEnd = 7
};
enum class Codec : uint32_t { kNone = 0, kZstd = 1 };

struct ObjectName {
  ObjectKind kind = ObjectKind::kFixed;
  Hash128 key;       // of the page; of the snapshot for all others; zero for kStore and kIdentity
  Hash128 identity;  // digest of the StateIdentity
};

struct ObjectHeader {
  ObjectName name;
  uint64_t raw_bytes = 0;
  uint64_t stored_bytes = 0;  // behind the header
  uint64_t checksum = 0;      // XXH3, 64 bits, of the raw bytes
  Codec codec = Codec::kNone;
};

// Whether compressing would save at least a tenth: asks zstd about four pieces of 64 KiB, evenly spread.
// Recurrent states in float32 mostly do not pay; zstd's fastest level runs at about 0.4 GB/s per core, so
// asking costs under a millisecond.
bool compression_pays(std::span<const std::byte> raw);

// Writes an object at `offset`; returns its length, header included. `checksum`: of the raw bytes, if known;
// it is what readers compare with, so damage on the way to the disk is found as well.
struct ObjectToWrite {
  ObjectName name;
  std::span<const std::byte> raw;
  uint64_t checksum = 0;
  bool may_compress = true;
};
Result<uint64_t> write_object(DiskFiles& files, int fd, const std::string& path, uint64_t offset,
                              const ObjectToWrite& object, const Pace& pace);

// kDataLoss: no header of this version, or damaged.
Result<ObjectHeader> read_object_header(int fd, const std::string& path, uint64_t offset);
// Reads the object's bytes into `raw` (header.raw_bytes) and compares the checksum. kDataLoss.
Status read_object_bytes(int fd, const std::string& path, uint64_t offset, const ObjectHeader& header,
                         std::span<std::byte> raw);
// kDataLoss: the header's object is another than expected; the message says which field differs.
Status check_object_name(const ObjectHeader& header, const ObjectName& expected, const std::string& path);

// A file with one object of known size.
Status read_object_file(const std::string& path, const ObjectName& expected, std::span<std::byte> raw);
// The same of unknown size up to bytes_max.
Result<std::vector<std::byte>> read_object_file(const std::string& path, const ObjectName& expected,
                                                uint64_t bytes_max);

}  // namespace strata::snapshot
