// What survives, what makes room, who sees what; damaged and foreign files.

#include "gateway/responses/response_store.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

namespace strata::gateway {
namespace {

const NamespaceId kMine = key_namespace("mine"), kYours = key_namespace("yours");
constexpr ResponseLimits kRoomy{.bytes_max = 1 << 20, .unused_s_max = 100};

StoredResponse response(const std::string& id, const std::string& previous = "", std::size_t bytes = 20) {
  return {.id = id,
          .previous = previous,
          .response = fmt::format("{{{}}}", std::string(bytes, 'r')),
          .input = "[1]"};
}

std::string numbered(int number) { return fmt::format("resp_{}", number); }

class ResponseStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string folder = (std::filesystem::temp_directory_path() / "strata-responses-XXXXXX").string();
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    path_ = folder + "/responses.sqlite";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  ResponseStore open(ResponseLimits limits = kRoomy, int64_t now = 1000) {
    auto store = ResponseStore::open(path_, limits, now);
    EXPECT_TRUE(store) << store.error().message();
    return std::move(*store);
  }
  static bool has(ResponseStore& store, const std::string& id, NamespaceId owner = kMine) {
    return store.find(owner, id).has_value();
  }

  std::string folder_, path_;
};

TEST_F(ResponseStoreTest, AResponseComesBackAsItWasPut) {
  {
    ResponseStore store = open();
    ASSERT_TRUE(store.put(kMine, response("resp_a"), 1000).ok());
    EXPECT_EQ(store.count(), 1u);
    EXPECT_EQ(store.bytes(), 6u + 22 + 3);
  }
  ResponseStore again = open();
  auto found = again.find(kMine, "resp_a");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->response, response("").response);
  EXPECT_EQ(found->input, "[1]");
  EXPECT_EQ(again.bytes(), 31u);
  struct stat info{};
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(ResponseStoreTest, AFileThatOthersMayReadIsRefused) {
  {
    open();
  }
  std::filesystem::permissions(path_, std::filesystem::perms(0640));
  const auto refused = ResponseStore::open(path_, kRoomy, 1000);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kPermissionDenied);
  EXPECT_NE(refused.error().message().find("chmod 600"), std::string::npos) << refused.error().message();
}

TEST_F(ResponseStoreTest, WhatWasAnsweredWithOkOutlivesAKill) {
  for (int round = 0; round < 5; ++round) {
    int answered[2];
    ASSERT_EQ(::pipe(answered), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      auto store = ResponseStore::open(path_, kRoomy, 1000);
      for (int i = 0;; ++i) {
        if (!store || !store->put(kMine, response(numbered(round * 1000 + i)), 1000).ok()) _exit(1);
        static_cast<void>(!::write(answered[1], "x", 1));
      }
    }
    ::close(answered[1]);
    char byte = 0;
    int count = 0;
    while (count < 5 && ::read(answered[0], &byte, 1) == 1) ++count;
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    while (::read(answered[0], &byte, 1) == 1) ++count;
    ::close(answered[0]);
    ASSERT_GE(count, 5);
    ResponseStore store = open();
    for (int i = 0; i < count; ++i) EXPECT_TRUE(has(store, numbered(round * 1000 + i))) << i;
  }
}

TEST_F(ResponseStoreTest, AnOwnerSeesNothingOfAnother) {
  ResponseStore store = open();
  ASSERT_TRUE(store.put(kMine, response("resp_a"), 1000).ok());
  EXPECT_EQ(store.find(kYours, "resp_a").error().code(), Code::kNotFound);
  EXPECT_EQ(store.chain(kYours, "resp_a", 1000, 1000).error().code(), Code::kNotFound);
  EXPECT_EQ(store.remove(kYours, "resp_a").code(), Code::kNotFound);
  EXPECT_EQ(store.put(kYours, response("resp_b", "resp_a"), 1000).code(), Code::kNotFound);
  EXPECT_TRUE(has(store, "resp_a"));
  EXPECT_EQ(store.count(), 1u);
}

TEST_F(ResponseStoreTest, AChainIsToldFromItsBeginning) {
  ResponseStore store = open();
  ASSERT_TRUE(store.put(kMine, response("resp_a"), 1000).ok());
  ASSERT_TRUE(store.put(kMine, response("resp_b", "resp_a"), 1000).ok());
  ASSERT_TRUE(store.put(kMine, response("resp_c", "resp_b"), 1000).ok());
  ASSERT_TRUE(store.put(kMine, response("resp_side", "resp_a"), 1000).ok());
  auto chain = store.chain(kMine, "resp_c", 1000, 1000);
  ASSERT_TRUE(chain);
  ASSERT_EQ(chain->size(), 3u);
  EXPECT_EQ(chain->front().id, "resp_a");
  EXPECT_EQ(chain->back().id, "resp_c");
  EXPECT_EQ(store.chain(kMine, "resp_c", 60, 1000).error().code(), Code::kOutOfRange);

  ASSERT_TRUE(store.remove(kMine, "resp_b").ok());
  EXPECT_EQ(store.count(), 3u);
  const auto broken = store.chain(kMine, "resp_c", 1000, 1000);
  EXPECT_EQ(broken.error().code(), Code::kNotFound);
  EXPECT_NE(broken.error().message().find("resp_b"), std::string::npos) << "the missing one is named";
  EXPECT_TRUE(has(store, "resp_c"));
  EXPECT_EQ(store.remove(kMine, "resp_b").code(), Code::kNotFound);
}

TEST_F(ResponseStoreTest, TheConversationUnusedLongestMakesRoomAsAWhole) {
  const ResponseLimits limits{.bytes_max = 700};
  ResponseStore store = open(limits);
  ASSERT_TRUE(store.put(kMine, response("resp_old", "", 80), 1000).ok());
  ASSERT_TRUE(store.put(kMine, response("resp_old2", "resp_old", 80), 1001).ok());
  ASSERT_TRUE(store.put(kYours, response("resp_mid", "", 200), 1002).ok());
  ASSERT_TRUE(store.put(kMine, response("resp_new", "", 80), 1003).ok());
  // Going on from the first makes it the newest in use.
  ASSERT_TRUE(store.chain(kMine, "resp_old2", 10000, 1004));
  ASSERT_TRUE(store.put(kMine, response("resp_new2", "resp_new", 200), 1005).ok());
  EXPECT_FALSE(has(store, "resp_mid", kYours));
  EXPECT_TRUE(has(store, "resp_old") && has(store, "resp_old2") && has(store, "resp_new2"));
  EXPECT_LE(store.bytes(), 700u);
  ASSERT_TRUE(store.put(kMine, response("resp_more", "", 250), 1006).ok());
  EXPECT_FALSE(has(store, "resp_old") || has(store, "resp_old2")) << "half of a conversation stayed";

  // No conversation is larger than all there is, and one that would be stays as it was.
  EXPECT_EQ(store.put(kMine, response("resp_huge", "", 700), 1007).code(), Code::kOutOfRange);
  EXPECT_EQ(store.put(kMine, response("resp_new3", "resp_new2", 400), 1007).code(), Code::kOutOfRange);
  EXPECT_TRUE(has(store, "resp_new2") && has(store, "resp_more"));
  const uint64_t bytes = store.bytes();
  EXPECT_EQ(open({.bytes_max = 700}).bytes(), bytes) << "the count in memory is not that of the file";
}

TEST_F(ResponseStoreTest, ASmallerLimitHoldsFromTheNextStartOn) {
  {
    ResponseStore store = open();
    ASSERT_TRUE(store.put(kMine, response("resp_a", "", 300), 1000).ok());
    ASSERT_TRUE(store.put(kMine, response("resp_b", "", 300), 1001).ok());
  }
  ResponseStore store = open({.bytes_max = 400});
  EXPECT_FALSE(has(store, "resp_a"));
  EXPECT_TRUE(has(store, "resp_b"));
}

TEST_F(ResponseStoreTest, WhatNobodyUsesForLongIsRemoved) {
  ResponseStore store = open();
  ASSERT_TRUE(store.put(kMine, response("resp_a"), 1000).ok());
  ASSERT_TRUE(store.put(kMine, response("resp_b"), 1000).ok());
  ASSERT_TRUE(store.put(kMine, response("resp_b2", "resp_b"), 1050).ok());
  ASSERT_TRUE(store.sweep(1100).ok());
  EXPECT_TRUE(has(store, "resp_a")) << "a second too early";
  ASSERT_TRUE(store.sweep(1101).ok());
  EXPECT_FALSE(has(store, "resp_a"));
  EXPECT_TRUE(has(store, "resp_b") && has(store, "resp_b2")) << "the conversation was used later";
  EXPECT_EQ(store.count(), 2u);
  ASSERT_TRUE(open({.bytes_max = 1000}).sweep(1000000).ok());
  EXPECT_TRUE(has(store, "resp_b")) << "0 is no limit";
  ResponseStore later = open(kRoomy, 2000);
  EXPECT_FALSE(has(later, "resp_b")) << "opening sweeps";
}

TEST_F(ResponseStoreTest, AnIdIsGivenOnce) {
  ResponseStore store = open();
  ASSERT_TRUE(store.put(kMine, response("resp_a"), 1000).ok());
  EXPECT_FALSE(store.put(kMine, response("resp_a", "", 50), 1000).ok());
  EXPECT_EQ(store.find(kMine, "resp_a")->response.size(), 22u);
  EXPECT_EQ(store.count(), 1u);
}

TEST_F(ResponseStoreTest, DamagedAndForeignFilesAreToldApartFromNone) {
  const std::string text = "this is no database, but somebody's notes. ";
  std::ofstream(path_) << text + std::string(5000, '.');
  std::filesystem::permissions(path_, std::filesystem::perms(0600));
  EXPECT_EQ(ResponseStore::open(path_, kRoomy, 1000).error().code(), Code::kDataLoss);
  auto aside = set_aside(path_, 1000);
  ASSERT_TRUE(aside);
  EXPECT_EQ(*aside, path_ + ".set-aside-1000");
  EXPECT_GT(std::filesystem::file_size(*aside), 5000u);
  {
    ASSERT_TRUE(open().put(kMine, response("resp_a"), 1000).ok());
  }

  // Another program's database, and one of a later version of ours.
  for (const char* change : {"PRAGMA application_id=77", "PRAGMA user_version=9"}) {
    auto database = sqlite::Database::open(path_);
    ASSERT_TRUE(database && database->execute(change).ok());
    EXPECT_EQ(ResponseStore::open(path_, kRoomy, 1000).error().code(), Code::kDataLoss) << change;
  }
  std::filesystem::remove(path_);
  {
    auto database = sqlite::Database::open(path_);
    ASSERT_TRUE(database && database->execute("CREATE TABLE theirs(a)").ok());
  }
  EXPECT_EQ(ResponseStore::open(path_, kRoomy, 1000).error().code(), Code::kDataLoss);
}

TEST_F(ResponseStoreTest, DamageInTheMiddleIsAnErrorAndNoCrash) {
  {
    ResponseStore store = open();
    for (int i = 0; i < 200; ++i) ASSERT_TRUE(store.put(kMine, response(numbered(i), "", 500), 1000).ok());
  }
  const auto size = std::filesystem::file_size(path_);
  ASSERT_GT(size, 40000u);
  std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(8192);
  file << std::string(size - 8192, '\x7f');
  file.close();
  auto store = ResponseStore::open(path_, kRoomy, 1000);
  if (!store) {
    EXPECT_EQ(store.error().code(), Code::kDataLoss);
    return;
  }
  bool seen = false;
  for (int i = 0; i < 200; ++i) {
    auto found = store->find(kMine, numbered(i));
    seen |= !found && found.error().code() == Code::kDataLoss;
  }
  EXPECT_TRUE(seen);
}

TEST_F(ResponseStoreTest, SettingAsideSaysWhatIsInTheWay) {
  EXPECT_TRUE(set_aside(path_, 1000)) << "nothing there is nothing in the way";
  std::ofstream(path_) << "x";
  std::filesystem::create_directories(path_ + ".set-aside-1000/full");
  EXPECT_FALSE(set_aside(path_, 1000));
}

}  // namespace
}  // namespace strata::gateway
