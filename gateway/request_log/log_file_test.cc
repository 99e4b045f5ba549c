#include "gateway/request_log/log_file.h"

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace strata::gateway {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

constexpr uint64_t kPlenty = 1 << 20;

class LogFileTest : public ::testing::Test {
 protected:
  LogFileTest() {
    std::string folder = (fs::temp_directory_path() / "strata-log-file-XXXXXX").string();
    EXPECT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    path_ = folder_ + "/requests.jsonl";
  }
  ~LogFileTest() override { fs::remove_all(folder_); }

  static std::string text(const std::string& path) {
    std::ifstream in(path);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  // Lines of three bytes each.
  static void add(LogFile& file, const std::vector<std::string>& lines) {
    for (const std::string& line : lines) {
      const Status added = file.append(line + "\n");
      EXPECT_TRUE(added.ok()) << added.message();
    }
  }

  std::string folder_, path_;
};

// A full disk as a process can have one for itself: a write beyond the limit takes what fits and then fails.
class FullDisk {
 public:
  explicit FullDisk(rlim_t file_bytes) : old_handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit limit{.rlim_cur = file_bytes, .rlim_max = old_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &old_);
    std::signal(SIGXFSZ, old_handler_);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit old_{};
  void (*old_handler_)(int);
};

TEST_F(LogFileTest, KeepsWhatWasThereAndIsForItsUserOnly) {
  for (const char* line : {"01", "02"}) {
    LogFile file(path_, kPlenty);
    ASSERT_TRUE(file.open().ok());
    add(file, {line});
  }
  EXPECT_EQ(text(path_), "01\n02\n");
  struct stat info{};
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(LogFileTest, OlderFilesMoveOnAndTheOldestGoes) {
  {
    LogFile file(path_, 6);
    add(file, {"01", "02", "03", "04", "05", "06", "07", "08", "09", "10", "11"});
  }
  EXPECT_EQ(text(path_), "11\n");
  EXPECT_EQ(text(path_ + ".1"), "09\n10\n");
  EXPECT_EQ(text(path_ + ".4"), "03\n04\n");
  EXPECT_FALSE(fs::exists(path_ + ".5"));
  LogFile file(path_, 6);
  add(file, {"12", "13"});
  EXPECT_EQ(text(path_ + ".1"), "11\n12\n") << "the size counts what was there";
}

TEST_F(LogFileTest, ALineThatIsLargerThanAFileMayBeHasOneOfItsOwn) {
  LogFile file(path_, 1);
  add(file, {"01", "02"});
  EXPECT_EQ(text(path_), "02\n");
  EXPECT_EQ(text(path_ + ".1"), "01\n");
}

TEST_F(LogFileTest, ARotationThatFailsLosesNoOlderFileAndIsGoneOnWith) {
  LogFile file(path_, 3);
  add(file, {"01", "02", "03"});
  fs::create_directories(path_ + ".4/in-the-way");  // no file can be renamed over it
  std::ofstream(path_ + ".3") << "00\n";
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(file.append("xx\n").ok());
  EXPECT_EQ(text(path_), "03\n");
  EXPECT_EQ(text(path_ + ".1"), "02\n");
  EXPECT_EQ(text(path_ + ".2"), "01\n");
  EXPECT_EQ(text(path_ + ".3"), "00\n");

  fs::remove_all(path_ + ".4");
  add(file, {"04"});
  EXPECT_EQ(text(path_), "04\n");
  EXPECT_EQ(text(path_ + ".1"), "03\n");
  EXPECT_EQ(text(path_ + ".4"), "00\n");
}

TEST_F(LogFileTest, OfALineThatDoesNotFitOnTheDiskNothingStays) {
  LogFile file(path_, kPlenty);
  add(file, {"01"});
  {
    const FullDisk disk(4);
    const Status added = file.append("02\n");
    EXPECT_FALSE(added.ok());
    EXPECT_THAT(std::string(added.message()), HasSubstr(path_));
    EXPECT_EQ(text(path_), "01\n") << "the byte that did fit is gone again";
    EXPECT_FALSE(file.append("03\n").ok());
  }
  add(file, {"04"});
  EXPECT_EQ(text(path_), "01\n04\n");
}

TEST_F(LogFileTest, ALineThatWasCutOffDoesNotSpoilTheNext) {
  std::ofstream(path_) << "01\n0";
  fs::permissions(path_, fs::perms(0600));
  LogFile file(path_, kPlenty);
  ASSERT_TRUE(file.open().ok());
  add(file, {"02"});
  EXPECT_EQ(text(path_), "01\n0\n02\n");
}

TEST_F(LogFileTest, AFileThatIsMovedAwayOrRemovedIsReplaced) {
  LogFile file(path_, kPlenty);
  add(file, {"01"});
  fs::rename(path_, path_ + ".old");
  add(file, {"02"});
  EXPECT_EQ(text(path_ + ".old"), "01\n");
  EXPECT_EQ(text(path_), "02\n");
  fs::remove(path_);
  add(file, {"03"});
  EXPECT_EQ(text(path_), "03\n");

  fs::rename(folder_, folder_ + "-away");
  EXPECT_FALSE(file.append("xx\n").ok());
  fs::rename(folder_ + "-away", folder_);
  add(file, {"04"});
  EXPECT_EQ(text(path_), "03\n04\n");
}

// Rule I8.
TEST_F(LogFileTest, RefusesWhatOthersMayReadAndWhatIsNoFile) {
  std::ofstream(path_) << "";
  fs::permissions(path_, fs::perms(0644));
  Status opened = LogFile(path_, kPlenty).open();
  EXPECT_EQ(opened.code(), Code::kPermissionDenied);
  EXPECT_THAT(std::string(opened.message()), HasSubstr("chmod 600"));

  fs::remove(path_);
  fs::create_symlink(folder_ + "/elsewhere", path_);
  EXPECT_FALSE(LogFile(path_, kPlenty).open().ok()) << "follows a link";
  EXPECT_FALSE(fs::exists(folder_ + "/elsewhere"));

  fs::remove(path_);
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(LogFile(path_, kPlenty).open().code(), Code::kInvalidArgument) << "or waits for a reader";

  EXPECT_FALSE(LogFile(folder_, kPlenty).open().ok());
  opened = LogFile(folder_ + "/missing/requests.jsonl", kPlenty).open();
  EXPECT_EQ(opened.code(), Code::kNotFound);
  EXPECT_THAT(std::string(opened.message()), HasSubstr("/missing/"));
}

}  // namespace
}  // namespace strata::gateway
