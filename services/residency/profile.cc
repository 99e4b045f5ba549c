#include "services/residency/profile.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <span>

#include "services/base/limits.h"
#include "services/residency/open_file.h"
#include "services/residency/replace_file.h"

namespace strata::residency {
namespace {

static_assert(std::endian::native == std::endian::little, "the header is written as it is in memory");

constexpr char kMagic[8] = {'S', 'T', 'R', 'P', 'R', 'O', 'F', '\n'};
constexpr uint32_t kPlainVersion = 1;   // without topics
constexpr uint32_t kTopicsVersion = 2;  // topics follow the counts
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

struct TopicsHeader {
  uint32_t topics;
  uint32_t zero;
};
static_assert(sizeof(TopicsHeader) == 8);

constexpr std::size_t kCountsMax = std::size_t{kLayersMax} * kExpertsMax;
constexpr std::size_t kFileBytesMax =
    sizeof(Header) + kFingerprintBytesMax + sizeof(uint64_t) * kCountsMax + sizeof(TopicsHeader) +
    TopicLearner::kTopicsMax * (sizeof(uint64_t) + sizeof(uint32_t) * kCountsMax) + sizeof(Checksum);

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
  if (header.version != kPlainVersion && header.version != kTopicsVersion) {
    return fail(Code::kDataLoss, "{}: byte 8: profile version is {}, expected {} or {}", path, header.version,
                kPlainVersion, kTopicsVersion);
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

std::size_t topic_bytes(const Header& header) {
  return sizeof(uint64_t) + sizeof(uint32_t) * header.layers * header.experts;
}

std::size_t topics_at(const Header& header) {
  return sizeof(Header) + header.fingerprint_bytes + counts_bytes(header);
}

// How many topics follow the counts.
Result<uint32_t> read_topic_count(const std::string& bytes, const Header& header, const std::string& path) {
  if (header.version == kPlainVersion) return 0;
  const std::size_t at = topics_at(header);
  TopicsHeader topics{};
  if (bytes.size() < at + sizeof(topics)) {
    return fail(Code::kDataLoss, "{}: has {} bytes, expected at least {} for {} layers with {} experts", path,
                bytes.size(), at + sizeof(topics), header.layers, header.experts);
  }
  std::memcpy(&topics, bytes.data() + at, sizeof(topics));
  if (topics.topics == 0 || topics.topics > TopicLearner::kTopicsMax || topics.zero != 0) {
    return fail(Code::kDataLoss, "{}: byte {}: {} topics and {}, expected 1 to {} and 0", path, at,
                topics.topics, topics.zero, TopicLearner::kTopicsMax);
  }
  return topics.topics;
}

Result<std::vector<Topic>> read_topics(const std::string& bytes, const Header& header, uint32_t count,
                                       const std::string& path) {
  std::vector<Topic> topics(count);
  std::size_t at = topics_at(header) + sizeof(TopicsHeader);
  for (Topic& topic : topics) {
    std::memcpy(&topic.tokens, bytes.data() + at, sizeof(topic.tokens));
    if (topic.tokens == 0) return fail(Code::kDataLoss, "{}: byte {}: a topic of 0 tokens", path, at);
    topic.counts.resize(std::size_t{header.layers} * header.experts);
    std::memcpy(topic.counts.data(), bytes.data() + at + sizeof(topic.tokens),
                topic.counts.size() * sizeof(uint32_t));
    at += topic_bytes(header);
  }
  return topics;
}

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

template <class Number>
void append(std::string& bytes, std::span<const Number> numbers) {
  bytes.append(reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes());
}

std::string serialize(const Profile& profile) {
  Header header = {{},
                   profile.topics.empty() ? kPlainVersion : kTopicsVersion,
                   profile.layers,
                   profile.experts,
                   static_cast<uint32_t>(profile.model_fingerprint.size()),
                   profile.tokens};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  std::string bytes(sizeof(Header), '\0');
  std::memcpy(bytes.data(), &header, sizeof(Header));
  bytes += profile.model_fingerprint;
  append<uint64_t>(bytes, profile.counts);
  if (!profile.topics.empty()) {
    const TopicsHeader topics = {static_cast<uint32_t>(profile.topics.size()), 0};
    append<TopicsHeader>(bytes, {&topics, 1});
  }
  for (const Topic& topic : profile.topics) {
    append<uint64_t>(bytes, {&topic.tokens, 1});
    append<uint32_t>(bytes, topic.counts);
  }
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
  const bool topics_fit = std::ranges::all_of(profile.topics, [&](const Topic& topic) {
    return topic.tokens > 0 && topic.counts.size() == profile.counts.size();
  });
  if (!topics_fit || profile.topics.size() > TopicLearner::kTopicsMax) {
    return fail(Code::kInvalidArgument,
                "{}: {} topics cannot be written, expected at most {}, each with tokens and {} counts", path,
                profile.topics.size(), TopicLearner::kTopicsMax, profile.counts.size());
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
  TRY(const uint32_t topics, read_topic_count(bytes, header, path));
  const std::size_t topics_bytes = topics == 0 ? 0 : sizeof(TopicsHeader) + topics * topic_bytes(header);
  const std::size_t expected_bytes = topics_at(header) + topics_bytes + sizeof(Checksum);
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
  TRY(profile.topics, read_topics(bytes, header, topics, path));
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
