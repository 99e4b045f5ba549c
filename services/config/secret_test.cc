#include "services/config/secret.h"

#include <gmock/gmock.h>

#include <vector>

namespace strata::config {
namespace {

// FIPS 180-2, appendix B.1.
constexpr std::string_view kHashOfAbc =
    "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

TEST(Secret, ASecretAndItsHashAreTheSame) {
  EXPECT_EQ(hash_secret("abc").text(), kHashOfAbc);
  EXPECT_EQ(*read_secret("abc"), hash_secret("abc"));
  EXPECT_EQ(*read_secret(kHashOfAbc), hash_secret("abc"));
  EXPECT_EQ(*read_secret("sha256:BA7816BF8F01CFEA414140DE5DAE2223B00361A396177A9CB410FF61F20015AD"),
            hash_secret("abc"));
  EXPECT_NE(*read_secret("abd"), hash_secret("abc"));
}

TEST(Secret, RefusesWhatCannotBeOneAndDoesNotRepeatIt) {
  const std::string long_one(257, 'k');
  EXPECT_TRUE(read_secret(long_one.substr(1)));
  for (const std::string& bad : std::vector<std::string>{
           "", "two words", "tab\tbed", "comma,", "[x]", "schl\xc3\xbcssel", "sha256:", "sha256:abcd",
           "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015a",
           "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad0",
           "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015-d", long_one}) {
    auto secret = read_secret(bad);
    ASSERT_FALSE(secret) << bad;
    EXPECT_EQ(secret.error().code(), Code::kInvalidArgument);
    if (bad.size() > 7) {
      EXPECT_THAT(secret.error().message(), ::testing::Not(::testing::HasSubstr(bad)));
    }
  }
}

}  // namespace
}  // namespace strata::config
