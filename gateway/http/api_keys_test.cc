#include "gateway/http/api_keys.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace strata::gateway {
namespace {

using config::hash_secret;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

HttpRequest with(std::vector<std::pair<std::string, std::string>> headers,
                 std::string target = "/v1/models") {
  return {.method = "GET", .target = std::move(target), .headers = std::move(headers)};
}

TEST(ApiKeysTest, WithoutKeysEverybodyIsLetInAsNobodyInParticular) {
  ApiKeys keys({});
  EXPECT_EQ(*keys.admit(with({})), "");
  EXPECT_EQ(*keys.admit(with({{"authorization", "Bearer x"}, {"x-api-key", "y"}})), "");
}

TEST(ApiKeysTest, TakesEachKeyInEachFormAndTellsThemApart) {
  ApiKeys keys({hash_secret("one"), hash_secret("two")});
  for (const char* value : {"Bearer one", "bearer one", "BEARER   one "}) {
    auto key = keys.admit(with({{"authorization", value}}));
    ASSERT_TRUE(key) << value;
    EXPECT_EQ(*key, hash_secret("one").text());
  }
  EXPECT_EQ(*keys.admit(with({{"x-api-key", "two"}})), hash_secret("two").text());
}

TEST(ApiKeysTest, OneRightKeyAmongSeveralIsEnough) {
  ApiKeys keys({hash_secret("one")});
  EXPECT_TRUE(keys.admit(with({{"authorization", "Bearer made-up"}, {"x-api-key", "one"}})));
  EXPECT_TRUE(keys.admit(with({{"x-api-key", "made-up"}, {"authorization", "Bearer one"}})));
}

TEST(ApiKeysTest, RefusesEverythingElse) {
  ApiKeys keys({hash_secret("key-one"), hash_secret("key-two")});
  const std::vector<HttpRequest> wrong = {
      with({}),
      with({{"authorization", "Bearer wrong"}}),
      with({{"authorization", "Bearer "}}),
      with({{"authorization", "Bearer"}}),
      with({{"authorization", "key-one"}}),
      with({{"authorization", "Basic OmtleS1vbmU="}}),
      with({{"authorization", "Bearer key-one key-two"}}),
      with({{"x-api-key", "key-on"}}),
      with({{"x-api-key", "key-one2"}}),
      with({{"x-api-key", ""}}),
      with({{"x-api-key", hash_secret("key-one").text()}}),
      with({{"cookie", "key-one"}}),
      with({}, "/v1/models?api_key=key-one"),
  };
  for (const HttpRequest& request : wrong) {
    auto key = keys.admit(request);
    ASSERT_FALSE(key) << request.target << (request.headers.empty() ? "" : request.headers[0].second);
    EXPECT_EQ(key.error().status, 401u);
    EXPECT_EQ(key.error().code, "invalid_api_key");
    EXPECT_THAT(key.error().message, Not(HasSubstr("key-one")));
  }
  EXPECT_THAT(keys.admit(with({})).error().message, HasSubstr("wants an API key"));
  EXPECT_THAT(keys.admit(with({{"x-api-key", "no"}})).error().message, HasSubstr("not one of"));
}

TEST(ApiKeysTest, OnlyHealthIsOpen) {
  for (const char* path : {"/live", "/health", "/health/", "/v1/health?verbose", "/ready"})
    EXPECT_TRUE(needs_no_key(path)) << path;
  for (const char* path : {"/", "/metrics", "/props", "/v1/models", "/v1/chat/completions", "/nothing",
                           "/livery", "//health", "/v1/models?x=/health"}) {
    EXPECT_FALSE(needs_no_key(path)) << path;
  }
}

class KeyFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string folder = (std::filesystem::temp_directory_path() / "strata-keys-XXXXXX").string();
    ASSERT_NE(::mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    path_ = folder + "/keys";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void write(std::string_view text, mode_t mode = 0600) {
    std::ofstream(path_, std::ios::binary) << text;
    ASSERT_EQ(::chmod(path_.c_str(), mode), 0);
  }
  std::string fault() {
    auto keys = read_key_file(path_);
    return keys ? "" : keys.error().message();
  }
  std::string folder_, path_;
};

TEST_F(KeyFileTest, ReadsKeysAndHashesBetweenCommentsAndEmptyLines) {
  write("# of the team\n\n  one  \r\n" + hash_secret("two").text() + "\n#three\nfour");
  auto keys = read_key_file(path_);
  ASSERT_TRUE(keys) << keys.error().message();
  EXPECT_THAT(*keys, ElementsAre(hash_secret("one"), hash_secret("two"), hash_secret("four")));
}

TEST_F(KeyFileTest, SaysWhatIsWrongAndWhereButNotTheKey) {
  EXPECT_THAT(fault(), HasSubstr("No such file"));
  write("fine\nnot fine\n");
  EXPECT_THAT(fault(), HasSubstr(path_ + ":2: expected"));
  EXPECT_THAT(fault(), Not(HasSubstr("not fine")));
  write("sha256:12\n");
  EXPECT_THAT(fault(), EndsWith(":1: expected sha256: and 64 hexadecimal digits"));
  write("# nothing\n");
  EXPECT_THAT(fault(), HasSubstr("holds no key")) << "an empty list would let everybody in";
  path_ = folder_;
  EXPECT_THAT(fault(), HasSubstr("cannot be read as a file"));
}

TEST_F(KeyFileTest, KeysThatEverybodyMayReadAreRefusedHashesAreNot) {
  write("one\n", 0644);
  EXPECT_THAT(fault(), HasSubstr("everybody may read these keys (mode 0644)"));
  write(hash_secret("one").text() + "\n", 0644);
  EXPECT_EQ(fault(), "");
}

}  // namespace
}  // namespace strata::gateway
