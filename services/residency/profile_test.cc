#include "services/residency/profile.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/support/test_data.h"

namespace strata::residency {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class ProfileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string form = std::filesystem::temp_directory_path() / "strata-profile-XXXXXX";
    ASSERT_NE(::mkdtemp(form.data()), nullptr);
    folder_ = form;
    path_ = folder_ / "model.profile";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static Profile sample() {
    return {.model_fingerprint = "694fa1504932c49b3f871a8ab20ca36f",
            .layers = 2,
            .experts = 3,
            .tokens = 12345,
            .counts = {1, 2, 1, 0, 0, uint64_t{1} << 60},
            .topics = {}};
  }

  Status status_of_reading(const std::string& bytes) const {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
    const auto profile = read_profile(path_);
    return profile.has_value() ? Status() : profile.error();
  }

  std::filesystem::path folder_;
  std::string path_;
};

TEST_F(ProfileTest, ReadsBackWhatWasWritten) {
  ASSERT_TRUE(write_profile(sample(), path_).ok());
  const auto read = read_profile(path_, sample().model_fingerprint);
  ASSERT_TRUE(read.has_value()) << read.error().message();
  EXPECT_EQ(read->model_fingerprint, sample().model_fingerprint);
  EXPECT_EQ(read->layers, 2U);
  EXPECT_EQ(read->experts, 3U);
  EXPECT_EQ(read->tokens, 12345U);
  EXPECT_EQ(read->counts, sample().counts);
}

TEST_F(ProfileTest, HoldsTopicsInVersion2) {
  Profile profile = sample();
  profile.topics = {{.tokens = 64, .counts = {1, 2, 3, 4, 5, 6}},
                    {.tokens = 7, .counts = {0, 0, 0, 0, 0, 9}}};
  ASSERT_TRUE(write_profile(profile, path_).ok());
  const auto read = read_profile(path_);
  ASSERT_TRUE(read.has_value()) << read.error().message();
  EXPECT_EQ(read->counts, profile.counts);
  ASSERT_EQ(read->topics.size(), 2U);
  EXPECT_EQ(read->topics[0].tokens, 64U);
  EXPECT_EQ(read->topics[0].counts, profile.topics[0].counts);
  EXPECT_EQ(read->topics[1].tokens, 7U);
  EXPECT_EQ(read->topics[1].counts, profile.topics[1].counts);

  std::ifstream in(path_, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  EXPECT_EQ(bytes[8], 2);
  EXPECT_EQ(bytes.size(), 32 + 32 + 6 * 8 + 8 + 2 * (8 + 6 * 4) + 8U);
  const auto with = [&](std::size_t at, char value) {
    std::string damaged = bytes;
    damaged[at] = value;
    return std::string(status_of_reading(damaged).message());
  };
  EXPECT_THAT(with(112, 0), HasSubstr("byte 112: 0 topics and 0, expected 1 to 16 and 0"));
  EXPECT_THAT(with(112, 17), HasSubstr("17 topics"));
  EXPECT_THAT(with(112, 1), HasSubstr("expected 160"));
  EXPECT_THAT(with(116, 1), HasSubstr("2 topics and 1"));
  EXPECT_THAT(with(130, 77), HasSubstr("checksum"));
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_EQ(status_of_reading(bytes.substr(0, size)).code(), Code::kDataLoss) << size;
}

TEST_F(ProfileTest, RefusesToWriteTopicsThatCouldNotBeRead) {
  const auto refuses = [&](std::vector<Topic> topics) {
    Profile profile = sample();
    profile.topics = std::move(topics);
    return write_profile(profile, path_).code() == Code::kInvalidArgument;
  };
  const Topic good{.tokens = 1, .counts = std::vector<uint32_t>(6)};
  EXPECT_FALSE(refuses({good}));
  EXPECT_TRUE(refuses({good, {.tokens = 0, .counts = good.counts}}));
  EXPECT_TRUE(refuses({{.tokens = 1, .counts = {1, 2}}}));
  EXPECT_TRUE(refuses(std::vector<Topic>(17, good)));
}

// The format is a promise to files that exist: these bytes must stay readable, and writing must give exactly
// them.
TEST_F(ProfileTest, KeepsItsDocumentedLayout) {
  ASSERT_TRUE(
      write_profile({.model_fingerprint = "abc", .layers = 1, .experts = 2, .tokens = 7, .counts = {5, 258}},
                    path_)
          .ok());
  const std::string bytes = tests::read_text(path_);
  ASSERT_EQ(bytes.size(), 32U + 3 + 16 + 8);
  const std::string head(
      "STRPROF\n"
      "\1\0\0\0"
      "\1\0\0\0"
      "\2\0\0\0"
      "\3\0\0\0"
      "\7\0\0\0\0\0\0\0"
      "abc"
      "\5\0\0\0\0\0\0\0"
      "\2\1\0\0\0\0\0\0",
      51);
  EXPECT_EQ(bytes.substr(0, 51), head);
}

TEST_F(ProfileTest, RefusesEveryPrefixAndEveryChangedByte) {
  ASSERT_TRUE(write_profile(sample(), path_).ok());
  const std::string whole = tests::read_text(path_);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const Status status = status_of_reading(whole.substr(0, size));
    EXPECT_EQ(status.code(), Code::kDataLoss) << size;
    EXPECT_THAT(status.message(), HasSubstr("model.profile")) << size;
  }
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (const int bit : {0, 7}) {
      std::string changed = whole;
      changed[at] = static_cast<char>(changed[at] ^ (1 << bit));
      EXPECT_EQ(status_of_reading(changed).code(), Code::kDataLoss) << "byte " << at;
    }
  }
  EXPECT_EQ(status_of_reading(whole + "x").code(), Code::kDataLoss);
  EXPECT_TRUE(status_of_reading(whole).ok());
}

TEST_F(ProfileTest, SaysWhatIsWrong) {
  ASSERT_TRUE(write_profile(sample(), path_).ok());
  const std::string whole = tests::read_text(path_);
  auto with = [&](std::size_t at, char byte) {
    std::string changed = whole;
    changed[at] = byte;
    return status_of_reading(changed).message();
  };
  EXPECT_THAT(with(0, 'X'), HasSubstr("no routing profile"));
  EXPECT_THAT(with(8, 3), HasSubstr("version is 3, expected 1 or 2"));
  EXPECT_THAT(with(14, 1), HasSubstr("65538 layers"));
  EXPECT_THAT(with(21, 1), HasSubstr("a fingerprint of 288 bytes"));
  EXPECT_THAT(with(16, 4), HasSubstr("for 2 layers with 4 experts"));
  EXPECT_THAT(with(70, 'x'), HasSubstr("checksum"));
}

TEST_F(ProfileTest, DoesNotReadAHugeFile) {
  ASSERT_TRUE(write_profile(sample(), path_).ok());
  std::filesystem::resize_file(path_, uint64_t{1} << 40);
  EXPECT_EQ(read_profile(path_).error().code(), Code::kDataLoss);
}

TEST_F(ProfileTest, TellsAMissingFileFromAForeignOne) {
  EXPECT_EQ(read_profile(path_).error().code(), Code::kNotFound);
  EXPECT_EQ(read_profile(folder_).error().code(), Code::kInvalidArgument);
  ASSERT_TRUE(write_profile(sample(), path_).ok());
  const auto foreign = read_profile(path_, "0000");
  ASSERT_FALSE(foreign.has_value());
  EXPECT_EQ(foreign.error().code(), Code::kFailedPrecondition);
  EXPECT_THAT(foreign.error().message(), HasSubstr(sample().model_fingerprint));
}

TEST_F(ProfileTest, RefusesToWriteWhatItCouldNotRead) {
  Profile profile = sample();
  profile.counts.pop_back();
  EXPECT_EQ(write_profile(profile, path_).code(), Code::kInvalidArgument);
  profile = sample();
  profile.model_fingerprint.assign(100, 'f');
  EXPECT_EQ(write_profile(profile, path_).code(), Code::kInvalidArgument);
  EXPECT_EQ(write_profile(Profile{}, path_).code(), Code::kInvalidArgument);
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(ProfileTest, KeepsTheOldFileWhenWritingFails) {
  ASSERT_TRUE(write_profile(sample(), path_).ok());
  EXPECT_EQ(write_profile(sample(), folder_ / "none" / "p").code(), Code::kNotFound);
  // A folder in the place of the file cannot be replaced by one.
  std::filesystem::create_directory(folder_ / "folder");
  EXPECT_FALSE(write_profile(sample(), folder_ / "folder").ok());
  std::size_t entries = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder_)) ++entries;
  EXPECT_EQ(entries, 2U) << "a temporary file was left behind";
  EXPECT_TRUE(read_profile(path_).has_value());
}

TEST_F(ProfileTest, IsWholeWheneverItIsReadWhileItIsReplaced) {
  ASSERT_TRUE(write_profile(sample(), path_).ok());
  std::jthread writer([this] {
    for (int i = 0; i < 50; ++i) EXPECT_TRUE(write_profile(sample(), path_).ok());
  });
  for (int i = 0; i < 200; ++i) {
    const auto profile = read_profile(path_);
    ASSERT_TRUE(profile.has_value()) << profile.error().message();
  }
}

TEST_F(ProfileTest, GivesSharesWithinEachLayer) {
  EXPECT_THAT(sample().shares(), ElementsAre(0.25F, 0.5F, 0.25F, 0.0F, 0.0F, 1.0F));
  Profile unused = sample();
  unused.counts.assign(6, 0);
  EXPECT_THAT(unused.shares(), testing::Each(0.0F));
}

}  // namespace
}  // namespace strata::residency
