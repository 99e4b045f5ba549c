#include "services/residency/profile.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <bit>
#include <cerrno>
#include <cstring>

#include "services/base/limits.h"
#include "services/residency/open_file.h"
#include "services/residency/replace_file.h"

namespace strata::residency {
namespace {

static_assert(std::endian::native == std::endian::little, "the header is written as it is in memory");

constexpr char kMagic[8] = {'S', 'T', 'R', 'P', 'R', 'O', 'F', '\n'};
constexpr uint32_t kVersion = 1;
constexpr uint32_t kFingerprintBytesMax = 64;

struct Header {
  char magic[8];
  uint32_t version;
  uint32_t layers;
  uint32_t experts;
  uint32_t fingerprint_bytes;
  uint64_t tokens;
};
static_assert(sizeof(Header) == 32);

using Checksum = uint64_t;  // XXH3, 64 bits, of all bytes before it

constexpr std::size_t kFileBytesMax =
    sizeof(Header) + kFingerprintBytesMax + sizeof(uint64_t) * kLayersMax * kExpertsMax + sizeof(Checksum);

Result<std::string> read_file(const std::string& path) {
  const OpenFile file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.fd() < 0) {
    const int error = errno;
    const Code code = error == ENOENT || error == ENOTDIR ? Code::kNotFound
                      : error == EACCES                   ? Code::kPermissionDenied
                                                          : Code::kUnknown;
    return fail(code, "{}: cannot open: {}", path, system_text(error));
  }
  struct stat status = {};
  if (::fstat(file.fd(), &status) != 0 || !S_ISREG(status.st_mode))
    return fail(Code::kInvalidArgument, "{}: is no file", path);
  if (status.st_size < 0 || static_cast<uint64_t>(status.st_size) > kFileBytesMax) {
    return fail(Code::kDataLoss, "{}: has {} bytes, expected a profile of at most {}", path, status.st_size,
                kFileBytesMax);
  }
  std::string bytes(static_cast<std::size_t>(status.st_size), '\0');
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got = ::read(file.fd(), bytes.data() + done, bytes.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      return fail(Code::kDataLoss, "{}: cannot read at byte {}: {}", path, done, system_text(errno));
    if (got == 0) return fail(Code::kDataLoss, "{}: ends at byte {}, expected {}", path, done, bytes.size());
    done += static_cast<std::size_t>(got);
  }
  return bytes;
}

Result<Header> read_header(const std::string& bytes, const std::string& path) {
  Header header;
  if (bytes.size() < sizeof(Header)) {
    return fail(Code::kDataLoss, "{}: has {} bytes, expected at least the {} of a profile's header", path,
                bytes.size(), sizeof(Header));
  }
  std::memcpy(&header, bytes.data(), sizeof(Header));
  if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0)
    return fail(Code::kDataLoss, "{}: byte 0: no routing profile, expected its magic", path);
  if (header.version != kVersion) {
    return fail(Code::kDataLoss, "{}: byte 8: profile version is {}, expected {}", path, header.version,
                kVersion);
  }
  if (header.layers == 0 || header.layers > kLayersMax || header.experts == 0 ||
      header.experts > kExpertsMax) {
    return fail(Code::kDataLoss, "{}: byte 12: {} layers with {} experts, expected 1 to {} and 1 to {}", path,
                header.layers, header.experts, kLayersMax, kExpertsMax);
  }
  if (header.fingerprint_bytes > kFingerprintBytesMax) {
    return fail(Code::kDataLoss, "{}: byte 20: a fingerprint of {} bytes, expected at most {}", path,
                header.fingerprint_bytes, kFingerprintBytesMax);
  }
  return header;
}

std::size_t counts_bytes(const Header& header) { return sizeof(uint64_t) * header.layers * header.experts; }

Checksum checksum_of(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

Status check_checksum(const std::string& bytes, const std::string& path) {
  const std::size_t at = bytes.size() - sizeof(Checksum);
  Checksum found;
  std::memcpy(&found, bytes.data() + at, sizeof(found));
  const Checksum expected = checksum_of(std::string_view(bytes).substr(0, at));
  if (found == expected) return {};
  return fail(Code::kDataLoss, "{}: byte {}: checksum is {:016x}, expected {:016x}: the profile is damaged",
              path, at, found, expected);
}

std::string serialize(const Profile& profile) {
  Header header = {{},
                   kVersion,
                   profile.layers,
                   profile.experts,
                   static_cast<uint32_t>(profile.model_fingerprint.size()),
                   profile.tokens};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  std::string bytes(sizeof(Header), '\0');
  std::memcpy(bytes.data(), &header, sizeof(Header));
  bytes += profile.model_fingerprint;
  bytes.append(reinterpret_cast<const char*>(profile.counts.data()),
               profile.counts.size() * sizeof(uint64_t));
  const Checksum checksum = checksum_of(bytes);
  bytes.append(reinterpret_cast<const char*>(&checksum), sizeof(checksum));
  return bytes;
}

Status check_profile(const Profile& profile, const std::string& path) {
  if (profile.layers == 0 || profile.layers > kLayersMax || profile.experts == 0 ||
      profile.experts > kExpertsMax ||
      profile.counts.size() != std::size_t{profile.layers} * profile.experts ||
      profile.model_fingerprint.size() > kFingerprintBytesMax) {
    return fail(
        Code::kInvalidArgument,
        "{}: a profile of {} layers, {} experts, {} counts and a fingerprint of {} bytes cannot be written",
        path, profile.layers, profile.experts, profile.counts.size(), profile.model_fingerprint.size());
  }
  return {};
}

}  // namespace

std::vector<float> Profile::shares() const {
  std::vector<float> shares(counts.size());
  for (uint32_t layer = 0; layer < layers; ++layer) {
    const std::size_t begin = std::size_t{layer} * experts;
    double total = 0;
    for (uint32_t expert = 0; expert < experts; ++expert)
      total += static_cast<double>(counts[begin + expert]);
    if (total == 0) continue;  // a layer that was never used: all shares 0
    for (uint32_t expert = 0; expert < experts; ++expert) {
      shares[begin + expert] = static_cast<float>(static_cast<double>(counts[begin + expert]) / total);
    }
  }
  return shares;
}

Result<Profile> read_profile(const std::string& path, const std::string& expected_fingerprint) {
  TRY(const std::string bytes, read_file(path));
  TRY(const Header header, read_header(bytes, path));
  const std::size_t expected_bytes =
      sizeof(Header) + header.fingerprint_bytes + counts_bytes(header) + sizeof(Checksum);
  if (bytes.size() != expected_bytes) {
    return fail(Code::kDataLoss, "{}: has {} bytes, expected {} for {} layers with {} experts", path,
                bytes.size(), expected_bytes, header.layers, header.experts);
  }
  TRY_OK(check_checksum(bytes, path));
  Profile profile;
  profile.model_fingerprint = bytes.substr(sizeof(Header), header.fingerprint_bytes);
  profile.layers = header.layers;
  profile.experts = header.experts;
  profile.tokens = header.tokens;
  profile.counts.resize(std::size_t{header.layers} * header.experts);
  std::memcpy(profile.counts.data(), bytes.data() + sizeof(Header) + header.fingerprint_bytes,
              counts_bytes(header));
  if (!expected_fingerprint.empty() && profile.model_fingerprint != expected_fingerprint) {
    return fail(Code::kFailedPrecondition, "{}: is the profile of model {}, expected {}", path,
                profile.model_fingerprint, expected_fingerprint);
  }
  return profile;
}

Status write_profile(const Profile& profile, const std::string& path) {
  TRY_OK(check_profile(profile, path));
  return replace_file(path, serialize(profile));
}

}  // namespace strata::residency
