#include "services/snapshot/object_file.h"

#include <gtest/gtest.h>

#include "services/snapshot/disk_fixture.h"

namespace strata::snapshot {
namespace {

class ObjectFileTest : public DiskFixture {
 protected:
  const ObjectName name_{
      .kind = ObjectKind::kPage, .key = {.high = 1, .low = 2}, .identity = {.high = 3, .low = 4}};

  static std::vector<std::byte> random_bytes(std::size_t size) { return test_bytes(test_tokens(3), 5, size); }
  // Every eighth byte is random: zstd saves most of it.
  static std::vector<std::byte> compressible(std::size_t size) {
    auto bytes = random_bytes(size);
    for (std::size_t i = 0; i < size; ++i)
      if (i % 8 != 0) bytes[i] = std::byte{};
    return bytes;
  }
  uint64_t write(std::span<const std::byte> raw, bool may_compress = true) {
    DiskFiles files;
    const auto size = write_new_file(files, object_path(), [&](int fd, const std::string& temporary) {
      return write_object(
          files, fd, temporary, 0,
          {.name = name_, .raw = raw, .checksum = checksum64(raw), .may_compress = may_compress}, {});
    });
    CHECK(size.has_value(), "{}", size.error().message());
    return *size;
  }
  std::string object_path() const { return parent_ + "/object"; }
  Status read(std::size_t size) {
    std::vector<std::byte> into(size);
    return read_object_file(object_path(), name_, into);
  }
};

TEST_F(ObjectFileTest, GivesBackBytesOfAnySizeAndKind) {
  for (std::size_t size : {1UL, 127UL, 4096UL, 300'000UL, kWriteSliceBytes, 3 * kWriteSliceBytes + 17}) {
    for (const auto& raw : {random_bytes(size), compressible(size)}) {
      for (bool may_compress : {false, true}) {
        write(raw, may_compress);
        std::vector<std::byte> into(size);
        const Status status = read_object_file(object_path(), name_, into);
        EXPECT_TRUE(status.ok()) << status.message();
        EXPECT_TRUE(into == raw) << size;
        EXPECT_TRUE(read_object_file(object_path(), name_, size).value() == raw);
      }
    }
  }
}

TEST_F(ObjectFileTest, CompressesOnlyWhereItSavesATenth) {
  const std::size_t size = 1'000'000;
  EXPECT_EQ(write(random_bytes(size)), kObjectHeaderBytes + size);
  EXPECT_LT(write(compressible(size)), size / 2);
  EXPECT_EQ(write(compressible(size), false), kObjectHeaderBytes + size);
  EXPECT_FALSE(compression_pays({}));
  // Half of the first piece compresses, the others do not: an eighth saved; a quarter of it: a sixteenth.
  auto partly = random_bytes(size);
  std::fill_n(partly.begin(), 32 << 10, std::byte{});
  EXPECT_TRUE(compression_pays(partly));
  partly = random_bytes(size);
  std::fill_n(partly.begin(), 16 << 10, std::byte{});
  EXPECT_FALSE(compression_pays(partly));
}

// Any byte: of the header, of plain content, of a compressed frame.
TEST_F(ObjectFileTest, NoDamageChangesWhatIsRead) {
  for (const auto& raw : {random_bytes(150), compressible(1200)}) {
    write(raw);
    const auto good = file_bytes(object_path());
    for (std::size_t at = 0; at < good.size(); ++at) {
      auto bad = good;
      bad[at] ^= std::byte{0x10};
      write_bytes(object_path(), bad);
      std::vector<std::byte> into(raw.size());
      const Status status = read_object_file(object_path(), name_, into);
      // A frame of zstd has a bit or two that mean nothing.
      const bool harmless =
          status.ok() && at >= kObjectHeaderBytes && good.size() < raw.size() && into == raw;
      ASSERT_TRUE(status.code() == Code::kDataLoss || harmless) << "byte " << at;
    }
    for (std::size_t length = 0; length < good.size(); length += length < 140 ? 1 : 37) {
      write_bytes(object_path(), std::span(good).first(length));
      ASSERT_EQ(read(raw.size()).code(), Code::kDataLoss) << "cut at " << length;
    }
    auto longer = good;
    longer.push_back(std::byte{});
    write_bytes(object_path(), longer);
    EXPECT_EQ(read(raw.size()).code(), Code::kDataLoss);
    write_bytes(object_path(), good);
    EXPECT_TRUE(read(raw.size()).ok());
  }
}

TEST_F(ObjectFileTest, RefusesAnotherObjectThanTheOneExpected) {
  const auto raw = random_bytes(100);
  write(raw);
  std::vector<std::byte> into(100);
  const auto refused = [&](auto change) {
    ObjectName other = name_;
    change(other);
    return read_object_file(object_path(), other, into).code() == Code::kDataLoss;
  };
  EXPECT_TRUE(refused([](auto& n) { n.kind = ObjectKind::kTail; }));
  EXPECT_TRUE(refused([](auto& n) { n.key.low = 9; }));
  EXPECT_TRUE(refused([](auto& n) { n.identity.high = 9; }));
  EXPECT_EQ(read(101).code(), Code::kDataLoss) << "of another size";
  EXPECT_EQ(read_object_file(object_path(), name_, 99).error().code(), Code::kDataLoss);
  EXPECT_EQ(read_object_file(parent_ + "/none", name_, 99).error().code(), Code::kNotFound);
  std::filesystem::create_symlink(object_path(), parent_ + "/link");
  EXPECT_FALSE(read_object_file(parent_ + "/link", name_, 100)) << "a link could lead anywhere";
}

// A frame that holds more or less than the header says, with a header whose checksum is right.
TEST_F(ObjectFileTest, AFrameOfAnotherLengthIsDamage) {
  const auto raw = compressible(5000);
  for (const std::size_t claimed : {4999UL, 5001UL, 1UL}) {
    write(raw);
    auto bytes = file_bytes(object_path());
    const uint64_t size = claimed;
    std::memcpy(bytes.data() + 48, &size, sizeof size);
    const uint64_t checksum = checksum64(std::span(bytes).first(120));
    std::memcpy(bytes.data() + 120, &checksum, sizeof checksum);
    write_bytes(object_path(), bytes);
    EXPECT_EQ(read(claimed).code(), Code::kDataLoss) << claimed;
  }
}

TEST_F(ObjectFileTest, ThePaceIsAskedForEverySliceAndCanEndIt) {
  DiskFiles files;
  const auto raw = random_bytes(2 * kWriteSliceBytes + 5);
  uint64_t announced = 0;
  const auto write_paced = [&](const Pace& pace) {
    return write_new_file(files, object_path(), [&](int fd, const std::string& temporary) {
      return write_object(files, fd, temporary, 0, {.name = name_, .raw = raw, .checksum = checksum64(raw)},
                          pace);
    });
  };
  ASSERT_TRUE(write_paced([&](uint64_t bytes) {
    EXPECT_LE(bytes, kWriteSliceBytes);
    announced += bytes;
    return Status();
  }));
  EXPECT_EQ(announced, raw.size());
  std::filesystem::remove(object_path());
  const auto ended = write_paced([](uint64_t) -> Status { return fail(Code::kCancelled, "enough"); });
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error().code(), Code::kCancelled);
  EXPECT_TRUE(std::filesystem::is_empty(parent_)) << "no half file stays";
}

// --- manifests

TEST_F(ObjectFileTest, AManifestComesBackAndNoOtherBytesDo) {
  const Manifest manifest = content(test_tokens(11)).manifest;
  const auto bytes = serialize(manifest);
  const auto parsed = parse_manifest(bytes, test_identity());
  ASSERT_TRUE(parsed) << parsed.error().message();
  EXPECT_EQ(serialize(*parsed), bytes);
  EXPECT_EQ(parsed->words, manifest.words);
  EXPECT_EQ(parsed->page_keys, manifest.page_keys);
  EXPECT_EQ(parsed->kind, manifest.kind);
  for (std::size_t length = 0; length < bytes.size(); ++length)
    ASSERT_FALSE(parse_manifest(std::span(bytes).first(length), test_identity())) << length;

  const auto refused = [&](auto change) {
    Manifest other = manifest;
    change(other);
    return !parse_manifest(serialize(other), test_identity());
  };
  EXPECT_TRUE(refused([](auto& m) { m.id = {}; }));
  EXPECT_TRUE(refused([](auto& m) { m.name_space = {}; }));
  EXPECT_TRUE(refused([](auto& m) { m.kind = static_cast<SnapshotKind>(kSnapshotKinds); }));
  EXPECT_TRUE(refused([](auto& m) { m.cost_seconds = -1; }));
  EXPECT_TRUE(refused([](auto& m) { m.words.clear(); }));
  EXPECT_TRUE(refused([](auto& m) { m.words.resize(12); })) << "no tail any more, and a page too few";
  EXPECT_TRUE(refused([](auto& m) { m.part_checksums.pop_back(); }));
  EXPECT_TRUE(refused([](auto& m) { m.tail_bytes = 0; }));
  EXPECT_TRUE(refused([](auto& m) { m.tail_bytes = kTestPageBytes + 1; }));
  EXPECT_TRUE(refused([](auto& m) {
    m.page_keys.pop_back();
    m.page_checksums.pop_back();
  }));
  // A count that the bytes cannot hold must not be believed.
  auto hostile = bytes;
  const uint32_t count = UINT32_MAX;
  std::memcpy(hostile.data() + 76, &count, sizeof count);
  EXPECT_FALSE(parse_manifest(hostile, test_identity()));
}

}  // namespace
}  // namespace strata::snapshot
