#include "services/cli/bench_folder.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <optional>

namespace strata::cli {
namespace {

namespace fs = std::filesystem;

class BenchFolderTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(fs::create_directory(parent_)); }
  void TearDown() override { fs::remove_all(parent_); }
  BenchFolder create() const {
    auto folder = BenchFolder::create(parent_);
    EXPECT_TRUE(folder) << folder.error().message();
    return std::move(*folder);
  }
  const std::string parent_ = ::testing::TempDir() + "/bench-folder-test";
};

TEST_F(BenchFolderTest, IsPrivateAndGoesWithTheObject) {
  std::string path;
  {
    const BenchFolder folder = create();
    path = folder.path();
    std::ofstream(folder.model_path()) << "model";
    EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_all);
    const BenchFolder other = create();
    EXPECT_NE(other.path(), path);
    EXPECT_TRUE(fs::exists(folder.model_path())) << "another bench leaves it alone";
  }
  EXPECT_TRUE(fs::is_empty(parent_));
}

TEST_F(BenchFolderTest, RemovesWhatAKilledBenchLeftAndNothingElse) {
  const std::string stale = parent_ + "/strata-bench-killed", mine = parent_ + "/strata-other";
  fs::create_directories(stale + "/run");
  std::ofstream(stale + "/synthetic.gguf") << "model";
  std::ofstream(stale + "/made-by-strata-bench");
  // A user's folder may begin with the same word.
  const std::string results = parent_ + "/strata-bench-results";
  fs::create_directory(mine);
  fs::create_directory(results);
  const BenchFolder folder = create();
  EXPECT_FALSE(fs::exists(stale));
  EXPECT_TRUE(fs::exists(mine));
  EXPECT_TRUE(fs::exists(results));
}

TEST(BenchFolder, SaysWhereItCannotBe) {
  const auto folder = BenchFolder::create("/nowhere");
  ASSERT_FALSE(folder);
  EXPECT_NE(folder.error().message().find("/nowhere"), std::string::npos);
}

}  // namespace
}  // namespace strata::cli
