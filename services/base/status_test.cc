#include "services/base/status.h"

#include <gtest/gtest.h>

#include "services/base/check.h"

namespace strata {
namespace {

Result<int> half(int value) {
  if (value % 2 != 0) return fail(Code::kInvalidArgument, "{} is odd", value);
  return value / 2;
}

Result<int> quarter(int value) {
  TRY(int once, half(value));
  TRY(int twice, half(once));
  return twice;
}

Status positive(int value) {
  if (value <= 0) return fail(Code::kOutOfRange, "{} is not positive", value);
  return {};
}

Result<int> positive_quarter(int value) {
  TRY_OK(positive(value));
  return quarter(value);
}

TEST(Status, FailureKeepsCodeMessageAndTheLineOfTheCall) {
  auto result = half(3);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), Code::kInvalidArgument);
  EXPECT_EQ(result.error().message(), "3 is odd");
  EXPECT_EQ(result.error().where().rfind("services/base/status_test.cc:", 0), 0u) << result.error().where();
}

TEST(Status, TryPassesTheFirstFailureOn) {
  EXPECT_EQ(quarter(8).value(), 2);
  EXPECT_EQ(quarter(6).error().message(), "3 is odd");
  EXPECT_EQ(positive_quarter(-4).error().code(), Code::kOutOfRange);
  EXPECT_EQ(positive_quarter(12).value(), 3);
}

TEST(Status, CodesAreGrpcs) {
  EXPECT_EQ(static_cast<int>(Code::kUnauthenticated), 16);
  EXPECT_EQ(static_cast<int>(Code::kDataLoss), 15);
  EXPECT_EQ(code_name(Code::kAborted), "aborted");
}

TEST(CheckDeathTest, PrintsConditionValuesAndPlace) {
  EXPECT_DEATH(CHECK(1 > 2, "left {} right {}", 1, 2), "services/base/status_test.cc.*1 > 2.*left 1 right 2");
}

}  // namespace
}  // namespace strata
