// Opening: files that are not there, damaged or lying ones, and what a fingerprint depends on.

#include "services/gguf/gguf_file.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>

#include "services/gguf/allocation_watch.h"
#include "services/gguf/file_builder.h"
#include "tests/support/test_data.h"

namespace strata::gguf {
namespace {

using testing::HasSubstr;

class GgufFileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string form = std::filesystem::temp_directory_path() / "strata-gguf-XXXXXX";
    ASSERT_NE(::mkdtemp(form.data()), nullptr);
    folder_ = form;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    return folder_ / name;
  }

  std::filesystem::path folder_;
};

FileBuilder small_model() {
  FileBuilder builder;
  builder.key("general.architecture", ValueType::kString, FileBuilder::text("test"))
      .array("a.numbers", ValueType::kI32, 2,
             FileBuilder::number<int32_t>(-1) + FileBuilder::number<int32_t>(5))
      .array("a.strings", ValueType::kString, 2, FileBuilder::text("one") + FileBuilder::text("two"))
      .tensor("x", TensorType::kF32, {3, 2}, std::string(24, '\1'))
      .tensor("y", TensorType::kQ8_0, {32}, std::string(34, '\2'));
  return builder;
}

Status error_of(const Result<GgufFile>& file) { return file.has_value() ? Status() : file.error(); }

TEST_F(GgufFileTest, NamesAFileThatIsNotThere) {
  const Status status = error_of(GgufFile::open(folder_ / "none.gguf"));
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("none.gguf"));
}

TEST_F(GgufFileTest, RefusesDirectoriesAndPipesWithoutWaiting) {
  EXPECT_EQ(error_of(GgufFile::open(folder_)).code(), Code::kInvalidArgument);
  const std::string pipe = folder_ / "pipe.gguf";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(error_of(GgufFile::open(pipe)).code(), Code::kInvalidArgument);
}

TEST_F(GgufFileTest, SaysThatPermissionIsMissing) {
  const std::string path = write("secret.gguf", small_model().build());
  ASSERT_EQ(::chmod(path.c_str(), 0), 0);
  if (::access(path.c_str(), R_OK) == 0) GTEST_SKIP() << "this user may read everything";
  EXPECT_EQ(error_of(GgufFile::open(path)).code(), Code::kPermissionDenied);
}

TEST_F(GgufFileTest, KeepsTheMappingAsLongAsACopyLives) {
  const std::string path = write("m.gguf", small_model().build());
  std::optional<GgufFile> copy;
  {
    auto file = GgufFile::open(path);
    ASSERT_TRUE(file.has_value()) << file.error().message();
    copy = *file;
  }
  std::filesystem::remove(path);
  EXPECT_EQ(*copy->get_string("general.architecture"), "test");
  ASSERT_NE(copy->find_tensor("y"), nullptr);
  EXPECT_EQ(copy->find_tensor("y")->data[33], std::byte{2});
  EXPECT_EQ(copy->find_tensor("z"), nullptr);
}

TEST_F(GgufFileTest, RefusesEveryPrefixOfAFile) {
  const std::string whole = small_model().build();
  ASSERT_TRUE(GgufFile::parse(bytes_of(whole), "whole").has_value());
  for (std::size_t size = 0; size < whole.size(); ++size) {
    // A buffer of exactly this size, so that a sanitizer sees every step beyond its end.
    const std::vector<char> prefix(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    const auto file = GgufFile::parse(std::as_bytes(std::span(prefix)), "prefix");
    ASSERT_FALSE(file.has_value()) << size << " of " << whole.size();
    ASSERT_THAT(file.error().message(), HasSubstr("prefix: byte ")) << size;
  }
}

TEST_F(GgufFileTest, SurvivesEveryByteSetToEveryExtreme) {
  const std::string whole = small_model().build();
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (const char byte : {'\0', '\1', '\x7f', '\x80', '\xff'}) {
      std::vector<char> changed(whole.begin(), whole.end());
      changed[at] = byte;
      const auto file = GgufFile::parse(std::as_bytes(std::span(changed)), "changed", {.check_values = true});
      if (file.has_value()) static_cast<void>(file->fingerprint());
    }
  }
}

TEST_F(GgufFileTest, AllocatesNothingForALyingCount) {
  const std::string fill(4096, '\0');
  const std::vector<std::string> liars = {
      FileBuilder().counts(uint64_t{1} << 40, 0).build() + fill,
      FileBuilder().counts(100, uint64_t{1} << 40).build() + fill,
      FileBuilder().counts(170, 290).build() + fill,
      FileBuilder().array("a", ValueType::kU64, uint64_t{1} << 61, "").build() + fill,
      FileBuilder().array("a", ValueType::kString, uint64_t{1} << 40, "").build() + fill,
      FileBuilder().key("a", ValueType::kString, FileBuilder::number(uint64_t{1} << 62)).build() + fill,
  };
  for (std::size_t i = 0; i < liars.size(); ++i) {
    largest_allocation() = 0;
    EXPECT_FALSE(GgufFile::parse(bytes_of(liars[i]), "liar").has_value()) << i;
    EXPECT_LT(largest_allocation().load(), 4 * liars[i].size()) << i;
  }
}

TEST_F(GgufFileTest, AllocatesNothingForALongArrayUntilItIsAskedFor) {
  const uint64_t count = 100000;
  const std::string file =
      FileBuilder().array("a", ValueType::kU64, count, std::string(8 * count, '\0')).build();
  largest_allocation() = 0;
  const auto parsed = GgufFile::parse(bytes_of(file), "array");
  ASSERT_TRUE(parsed.has_value());
  EXPECT_LT(largest_allocation().load(), 65536U);
  EXPECT_EQ(parsed->get_uint_array("a")->size(), count);
}

TEST_F(GgufFileTest, PrintsBothSizesOfAnIncompleteDownload) {
  const std::string whole = small_model().build();
  const std::string path = write("part.gguf", whole.substr(0, whole.size() - 10));
  const Status status = error_of(GgufFile::open(path));
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr(fmt::format("{} bytes", whole.size() - 10)));
  EXPECT_THAT(status.message(), HasSubstr(fmt::format("expected {}", whole.size())));
  EXPECT_THAT(status.message(), HasSubstr("tensor 'y'"));
}

TEST_F(GgufFileTest, NamesTensorAndIdOfAnUnknownType) {
  for (const uint32_t id : {4U, 31U, 43U, 0x80000001U}) {
    const std::string bytes =
        FileBuilder().tensor("odd", TensorType{id}, {32}, std::string(64, '\0')).build();
    const Status status = error_of(GgufFile::parse(bytes_of(bytes), "f.gguf"));
    EXPECT_EQ(status.code(), Code::kUnimplemented) << id;
    EXPECT_THAT(status.message(), HasSubstr(fmt::format("tensor 'odd': tensor type {} ", id)));
  }
}

TEST_F(GgufFileTest, RefusesAnOverflowHiddenByAZeroDimension) {
  const std::string bytes =
      FileBuilder().tensor("t", TensorType::kF32, {0, uint64_t{1} << 40, uint64_t{1} << 40}, "").build();
  EXPECT_EQ(error_of(GgufFile::parse(bytes_of(bytes), "f")).code(), Code::kDataLoss);
}

TEST_F(GgufFileTest, KeepsTerminalsSafeFromNamesInErrors) {
  const std::string bytes = FileBuilder().tensor("\x1b[31m\n", TensorType{99}, {1}, "").build();
  const Status status = error_of(GgufFile::parse(bytes_of(bytes), "f"));
  EXPECT_THAT(status.message(), HasSubstr("'\\x1b[31m\\n'"));
}

FileBuilder shard_of(uint16_t no, uint16_t count, int32_t tensors) {
  FileBuilder builder;
  builder.key("split.no", ValueType::kU16, FileBuilder::number(no))
      .key("split.count", ValueType::kU16, FileBuilder::number(count))
      .key("split.tensors.count", ValueType::kI32, FileBuilder::number(tensors));
  return builder;
}

TEST_F(GgufFileTest, OpensShardsBesideTheFirst) {
  const std::string first = write("m-00001-of-00002.gguf", shard_of(0, 2, 1).build());
  write("m-00002-of-00002.gguf",
        shard_of(1, 2, 1).tensor("t", TensorType::kF32, {2}, std::string(8, '\0')).build());
  const auto file = GgufFile::open(first);
  ASSERT_TRUE(file.has_value()) << file.error().message();
  ASSERT_EQ(file->tensors().size(), 1U);
  EXPECT_EQ(file->tensors()[0].shard, 1U);
  EXPECT_EQ(file->shard_paths()[1], (folder_ / "m-00002-of-00002.gguf").string());
  EXPECT_EQ(file->total_bytes(),
            std::filesystem::file_size(first) + std::filesystem::file_size(file->shard_paths()[1]));
}

TEST_F(GgufFileTest, AsksForThePublishedNameOfARenamedShard) {
  const Status status = error_of(GgufFile::open(write("renamed.gguf", shard_of(0, 2, 1).build())));
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("-00001-of-00002.gguf"));
}

TEST_F(GgufFileTest, RefusesAShardWithoutAllSplitKeys) {
  const std::string bytes =
      FileBuilder().key("split.count", ValueType::kU16, FileBuilder::number<uint16_t>(2)).build();
  const Status status = error_of(GgufFile::open(write("m-00001-of-00002.gguf", bytes)));
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("split.no"));
}

std::string fingerprint_of(const std::string& bytes) {
  const auto file = GgufFile::parse(bytes_of(bytes), "f");
  return file.has_value() ? file->fingerprint() : file.error().message();
}

TEST_F(GgufFileTest, FingerprintsContentNotPaddingOrPlace) {
  std::string whole = small_model().build();
  const std::string fingerprint = fingerprint_of(whole);
  EXPECT_EQ(fingerprint.size(), 32U);
  EXPECT_EQ(fingerprint.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_EQ(fingerprint_of(whole + "trailing"), fingerprint);
  EXPECT_EQ(GgufFile::open(write("copy.gguf", whole))->fingerprint(), fingerprint);
  std::string other_data = whole;
  other_data.back() = '\7';
  EXPECT_NE(fingerprint_of(other_data), fingerprint);
  std::string other_key = whole;
  other_key[whole.find("test")] = 'T';
  EXPECT_NE(fingerprint_of(other_key), fingerprint);
}

TEST_F(GgufFileTest, FingerprintsSamplesOfLongData) {
  const std::string data(1 << 20, '\0');
  const std::string whole = FileBuilder().tensor("t", TensorType::kI8, {data.size()}, data).build();
  const std::string fingerprint = fingerprint_of(whole);
  auto changed_at = [&](std::size_t at) {
    std::string changed = whole;
    changed[whole.size() - data.size() + at] = '\1';
    return fingerprint_of(changed) != fingerprint;
  };
  EXPECT_TRUE(changed_at(0));
  EXPECT_TRUE(changed_at(data.size() / 2));
  EXPECT_TRUE(changed_at(data.size() - 1));
  EXPECT_FALSE(changed_at(data.size() / 4)) << "a 100 GB file would be read whole";
}

TEST_F(GgufFileTest, OpensTheDemoModel) {
  const auto file =
      GgufFile::open(std::string(STRATA_SOURCE_DIR) + "/models/strata-demo.gguf", {.check_values = true});
  ASSERT_TRUE(file.has_value()) << file.error().message();
  EXPECT_EQ(*file->get_string("general.architecture"), "qwen4exp");
  EXPECT_EQ(*file->get_uint("qwen4exp.block_count"), 9U);
  EXPECT_EQ(file->get_string_array("tokenizer.ggml.tokens")->size(), 8192U);
  EXPECT_FALSE(file->tensors().empty());
}

}  // namespace
}  // namespace strata::gguf
