// The keeper on virtual time: what it remembers, whom it answers, what it does about a file that breaks.

#include "gateway/responses/response_keeper.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "gateway/api/json_text.h"
#include "services/actor/actor_system.h"

namespace strata::gateway {
namespace {

const NamespaceId kMine = key_namespace("mine"), kYours = key_namespace("yours");

StoredResponse stored(const std::string& serial, const std::string& previous = "") {
  return {.id = fmt::format("resp_{}", serial),
          .previous = previous,
          .response =
              fmt::format(R"({{"id":"resp_{0}","output":[{{"id":"msg_{0}_0","type":"message"}}]}})", serial),
          .input = fmt::format(R"([{{"id":"msg_{}_i0","type":"message"}}])", serial)};
}

class ResponseKeeperTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string folder = (std::filesystem::temp_directory_path() / "strata-keeper-XXXXXX").string();
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    path_ = folder + "/responses.sqlite";
    start();
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void start() {
    auto keeper = ResponseKeeper::start(world_.make_executor(),
                                        {.path = path_,
                                         .limits = {.bytes_max = 10000, .unused_s_max = 100},
                                         .unix_time = [this] { return now_; }},
                                        metrics_);
    ASSERT_TRUE(keeper) << keeper.error().message();
    keeper_ = std::move(*keeper);
  }
  Status keep(StoredResponse response, NamespaceId owner = kMine) {
    std::optional<Status> said;
    tell(keeper_, ResponseKeeper::Keep{.owner = owner,
                                       .response = std::move(response),
                                       .reply = [&](Status status) { said = std::move(status); }});
    world_.deliver_all();
    return said.value();
  }
  ApiResult<Past> recall(const std::string& previous, std::vector<std::string> references = {},
                         NamespaceId owner = kMine) {
    std::optional<ApiResult<Past>> said;
    tell(keeper_, ResponseKeeper::Recall{.owner = owner,
                                         .previous = previous,
                                         .references = std::move(references),
                                         .reply = [&](ApiResult<Past> past) { said = std::move(past); }});
    world_.deliver_all();
    return said.value();
  }
  ApiResult<StoredResponse> find(const std::string& id, NamespaceId owner = kMine) {
    std::optional<ApiResult<StoredResponse>> said;
    tell(keeper_,
         ResponseKeeper::Find{.owner = owner, .id = id, .reply = [&](ApiResult<StoredResponse> found) {
                                said = std::move(found);
                              }});
    world_.deliver_all();
    return said.value();
  }
  ApiResult<void> remove(const std::string& id) {
    std::optional<ApiResult<void>> said;
    tell(keeper_, ResponseKeeper::Remove{.owner = kMine, .id = id, .reply = [&](ApiResult<void> removed) {
                                           said = std::move(removed);
                                         }});
    world_.deliver_all();
    return said.value();
  }
  double figure(const std::string& name) {
    for (const auto& family : metrics_.collect()) {
      if (family.name == name) return family.metric[0].gauge.value + family.metric[0].counter.value;
    }
    return -1;
  }
  // As another program could: the next statement finds it malformed.
  void break_schema() {
    auto database = sqlite::Database::open(path_);
    ASSERT_TRUE(database);
    const Status broken = database->execute(
        "PRAGMA writable_schema=ON; UPDATE sqlite_master SET sql='CREATE TABLE responses(' WHERE "
        "name='responses'; PRAGMA schema_version=99");
    ASSERT_TRUE(broken.ok()) << broken.message();
  }
  void damage() {
    const auto size = std::filesystem::file_size(path_);
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    file << std::string(size, '\x55');
  }
  std::size_t files_set_aside() const {
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder_))
      count += entry.path().string().ends_with(fmt::format("set-aside-{}", now_)) ? 1 : 0;
    return count;
  }

  int64_t now_ = 1000;
  std::string folder_, path_;
  actor::VirtualWorld world_;
  obs::Metrics metrics_{obs::Labels{}};
  std::shared_ptr<ResponseKeeper> keeper_;
};

TEST_F(ResponseKeeperTest, ThePastIsInputAndOutputOfEveryStep) {
  ASSERT_TRUE(keep(stored("a")).ok());
  ASSERT_TRUE(keep(stored("b", "resp_a")).ok());
  EXPECT_EQ(figure("strata_responses_stored"), 2);
  EXPECT_GT(figure("strata_responses_stored_bytes"), 100);
  auto past = recall("resp_b");
  ASSERT_TRUE(past) << past.error().message;
  std::string ids;
  for (const auto& item : past->items) ids += std::string(item.at("id").as_string()) + " ";
  EXPECT_EQ(ids, "msg_a_i0 msg_a_0 msg_b_i0 msg_b_0 ");
  EXPECT_TRUE(recall("")->items.empty());
}

TEST_F(ResponseKeeperTest, AnUnknownPastIsNamed) {
  auto past = recall("resp_none");
  ASSERT_FALSE(past);
  EXPECT_EQ(past.error().status, 404u);
  EXPECT_EQ(past.error().code, "previous_response_not_found");
  EXPECT_EQ(past.error().param, "previous_response_id");
  EXPECT_NE(past.error().message.find("resp_none"), std::string::npos);
  ASSERT_TRUE(keep(stored("a")).ok());
  EXPECT_EQ(recall("resp_a", {}, kYours).error().status, 404u);
  EXPECT_EQ(find("resp_a", kYours).error().code, "response_not_found");
}

TEST_F(ResponseKeeperTest, ReferencesFindItemsOfThePastAndOfOtherResponses) {
  ASSERT_TRUE(keep(stored("a")).ok());
  ASSERT_TRUE(keep(stored("b")).ok());
  auto past = recall("resp_a", {"msg_a_0", "msg_b_i0"});
  ASSERT_TRUE(past) << past.error().message;
  EXPECT_EQ(past->referenced.size(), 2u);
  EXPECT_EQ(past->referenced.at("msg_b_i0").at("id"), "msg_b_i0");
  for (const char* unknown : {"msg_b_7", "msg_none_0", "something", "_", ""}) {
    auto missing = recall("", {unknown});
    ASSERT_FALSE(missing) << unknown;
    EXPECT_EQ(missing.error().code, "item_not_found");
  }
  EXPECT_EQ(recall("", {"msg_b_0"}, kYours).error().status, 404u);
  EXPECT_EQ(response_of_item("msg_12ab_i0"), "resp_12ab");
  EXPECT_EQ(response_of_item("msg__0"), "");
}

TEST_F(ResponseKeeperTest, RemovedIsGone) {
  ASSERT_TRUE(keep(stored("a")).ok());
  EXPECT_TRUE(find("resp_a"));
  EXPECT_TRUE(remove("resp_a"));
  EXPECT_EQ(remove("resp_a").error().status, 404u);
  EXPECT_EQ(find("resp_a").error().status, 404u);
  EXPECT_EQ(figure("strata_responses_stored"), 0);
}

TEST_F(ResponseKeeperTest, SweepsEveryHour) {
  ASSERT_TRUE(keep(stored("a")).ok());
  now_ = 2000;
  world_.advance(std::chrono::minutes(59));
  EXPECT_TRUE(find("resp_a"));
  world_.advance(std::chrono::minutes(2));
  EXPECT_FALSE(find("resp_a"));
  EXPECT_EQ(figure("strata_responses_stored"), 0);
  ASSERT_TRUE(keep(stored("b")).ok());
  now_ = 3000;
  world_.advance(std::chrono::hours(1));
  EXPECT_FALSE(find("resp_b")) << "only once";
}

TEST_F(ResponseKeeperTest, ADamagedFileIsSetAsideAtStart) {
  ASSERT_TRUE(keep(stored("a")).ok());
  keeper_.reset();
  damage();
  start();
  EXPECT_EQ(files_set_aside(), 1u);
  EXPECT_EQ(find("resp_a").error().status, 404u);
  EXPECT_TRUE(keep(stored("b")).ok());
}

TEST_F(ResponseKeeperTest, WhatIsNoResponseInTheFileIsAnError) {
  StoredResponse wrong = stored("a"), other = stored("b");
  wrong.response = "[]";
  other.input = "no JSON";
  ASSERT_TRUE(keep(wrong).ok() && keep(other).ok());
  for (const auto& past : {recall("resp_a"), recall("resp_b")}) {
    ASSERT_FALSE(past);
    EXPECT_EQ(past.error().status, 500u);
    EXPECT_EQ(past.error().code, "storage_error");
  }
  EXPECT_EQ(recall("", {"msg_a_0"}).error().status, 500u);
  EXPECT_EQ(figure("strata_responses_storage_failures_total"), 3);
  EXPECT_EQ(files_set_aside(), 0u);
}

TEST_F(ResponseKeeperTest, AFileThatBreaksIsReplacedByANewOne) {
  ASSERT_TRUE(keep(stored("a")).ok());
  break_schema();
  EXPECT_EQ(recall("resp_a").error().code, "storage_error");
  EXPECT_EQ(files_set_aside(), 1u);
  EXPECT_EQ(figure("strata_responses_storage_failures_total"), 1);
  EXPECT_TRUE(keep(stored("b")).ok());
  EXPECT_TRUE(find("resp_b"));
  EXPECT_EQ(recall("resp_a").error().status, 404u);
}

TEST_F(ResponseKeeperTest, ABrokenFileThatCannotBeReplacedIsTriedAgain) {
  ASSERT_TRUE(keep(stored("a")).ok());
  std::filesystem::create_directories(fmt::format("{}.set-aside-{}/full", path_, now_));
  break_schema();
  EXPECT_EQ(recall("resp_a").error().status, 500u);
  EXPECT_EQ(find("resp_a").error().code, "storage_error");
  EXPECT_FALSE(keep(stored("b")).ok());
  EXPECT_FALSE(remove("resp_a"));
  ++now_;  // and with it the name
  world_.advance(std::chrono::hours(1));
  EXPECT_EQ(files_set_aside(), 1u);
  EXPECT_TRUE(keep(stored("b")).ok());
}

TEST_F(ResponseKeeperTest, WhatDoesNotFitIsNotKept) {
  StoredResponse large = stored("a");
  large.input += std::string(20000, ' ');
  EXPECT_EQ(keep(large).code(), Code::kOutOfRange);
  EXPECT_EQ(figure("strata_responses_storage_failures_total"), 0) << "that is no failure";
}

TEST_F(ResponseKeeperTest, AFolderThatIsNotThereIsAStartUpFault) {
  auto keeper = ResponseKeeper::start(
      world_.make_executor(), {.path = folder_ + "/none/a.sqlite", .unix_time = [] { return int64_t{0}; }},
      metrics_);
  ASSERT_FALSE(keeper);
  EXPECT_NE(keeper.error().message().find("none/a.sqlite"), std::string::npos);
}

}  // namespace
}  // namespace strata::gateway
