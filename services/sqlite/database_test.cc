// The wrapper's own promises: modes, error codes, what a transaction that was not committed leaves.

#include "services/sqlite/database.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

namespace strata::sqlite {
namespace {

class DatabaseTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string folder = (std::filesystem::temp_directory_path() / "strata-sqlite-XXXXXX").string();
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    path_ = folder + "/a.sqlite";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static Database opened(const std::string& path) {
    auto database = Database::open(path);
    EXPECT_TRUE(database) << database.error().message();
    return std::move(*database);
  }

  std::string folder_, path_;
};

TEST_F(DatabaseTest, AllItsFilesAreForTheUserOnly) {
  Database database = opened(path_);
  ASSERT_TRUE(database.execute("PRAGMA journal_mode=WAL; CREATE TABLE t(a)").ok());
  for (const std::string& file : files_of(path_)) {
    struct stat info{};
    ASSERT_EQ(::stat(file.c_str(), &info), 0) << file;
    EXPECT_EQ(info.st_mode & 0777, 0600u) << file;
  }
}

TEST_F(DatabaseTest, ValuesComeBackAsTheyWereBound) {
  Database database = opened(path_);
  ASSERT_TRUE(database.execute("CREATE TABLE t(a, b, c, d, e, f)").ok());
  const std::vector<uint32_t> list{1, 70000};
  auto insert = Statement::prepare(database, "INSERT INTO t VALUES(?,?,?,?,?,?)");
  ASSERT_TRUE(insert);
  for (int64_t i : {1, 2}) {
    ASSERT_TRUE(insert->bind(i)
                    .bind(0.5)
                    .bind(std::string_view("a\0b", 3))
                    .bind(std::span<const uint32_t>(list))
                    .bind(std::string_view())
                    .bind(std::span<const uint32_t>())
                    .run()
                    .ok());
  }
  auto ask = Statement::prepare(database, "SELECT *, e IS NULL, f IS NULL FROM t ORDER BY a DESC");
  ASSERT_TRUE(ask && ask->step().value());
  EXPECT_EQ(ask->integer(0), 2);
  EXPECT_EQ(ask->real(1), 0.5);
  EXPECT_EQ(ask->text(2), std::string_view("a\0b", 3));
  EXPECT_EQ(ask->list<uint32_t>(3), list);
  EXPECT_EQ(ask->text(4), "");
  EXPECT_TRUE(ask->list<uint32_t>(5).empty());
  EXPECT_EQ(ask->integer(6) + ask->integer(7), 0) << "an empty value became NULL";
  EXPECT_EQ(database.number("SELECT count(*) FROM t").value(), 2);
  EXPECT_EQ(database.number("SELECT a FROM t WHERE a = 9").value(), 0);
}

TEST_F(DatabaseTest, WhatIsNotCommittedIsUndone) {
  Database database = opened(path_);
  ASSERT_TRUE(database.execute("CREATE TABLE t(a)").ok());
  for (const bool commit : {false, true}) {
    Transaction transaction(database);
    ASSERT_TRUE(transaction.begin().ok());
    ASSERT_TRUE(database.execute("INSERT INTO t VALUES(1)").ok());
    if (commit) {
      ASSERT_TRUE(transaction.commit().ok());
    }
  }
  EXPECT_EQ(database.number("SELECT count(*) FROM t").value(), 1);
}

TEST_F(DatabaseTest, FaultsHaveTheirCodeAndNameTheFile) {
  auto code = [](const Status& status) { return status.code(); };
  std::ofstream(path_) << std::string(4096, 'x');
  Database foreign = opened(path_);
  const Status status = foreign.execute("PRAGMA journal_mode=WAL");
  EXPECT_EQ(code(status), Code::kDataLoss);
  EXPECT_NE(status.message().find(path_), std::string::npos) << status.message();

  EXPECT_EQ(Database::open(folder_ + "/none/a.sqlite").error().code(), Code::kNotFound);
  std::filesystem::create_symlink(path_, folder_ + "/link");
  EXPECT_FALSE(Database::open(folder_ + "/link")) << "somebody else's link leads us elsewhere";

  Database one = opened(folder_ + "/b.sqlite"), other = opened(folder_ + "/b.sqlite");
  EXPECT_EQ(code(one.execute("SELECT nothing FROM nowhere")), Code::kInternal);
  Transaction transaction(one);
  ASSERT_TRUE(transaction.begin().ok());
  EXPECT_EQ(code(other.execute("BEGIN IMMEDIATE")), Code::kUnavailable);
}

}  // namespace
}  // namespace strata::sqlite
