// Lines are captured from standard error, where they really go.
#include "services/obs/log.h"

#include <gmock/gmock.h>

#include <regex>

namespace strata::obs {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::internal::CaptureStderr;
using ::testing::internal::GetCapturedStderr;

std::string logged(const LogOptions& options, Level level, std::string_view subsystem,
                   std::string_view message) {
  init_log(options);
  CaptureStderr();
  log(level, subsystem, "{}", message);
  return GetCapturedStderr();
}

TEST(Log, WritesOneReadableLinePerEvent) {
  std::string line =
      logged({.process = "gateway"}, Level::kInfo, "exchange", "slot 3 now holds layer 1 expert 9");
  EXPECT_TRUE(std::regex_match(
      line,
      std::regex(
          R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z info  gateway exchange: slot 3 now holds layer 1 expert 9\n)")))
      << line;
}

TEST(Log, IndentsFurtherLinesSoThatNoneLooksLikeAnEvent) {
  std::string line = logged({.process = "gateway"}, Level::kError, "http", "two\nlines\tand \x1b[31mcolour");
  EXPECT_THAT(line, HasSubstr("two\n    lines\\tand \\u001b[31mcolour\n"));
}

TEST(Log, EscapesJson) {
  std::string line =
      logged({.process = "gpu-worker", .json = true}, Level::kWarn, "load", "a \"quoted\\ \n \x01 \xc3\xa4");
  EXPECT_THAT(line, HasSubstr(R"("level":"warn","process":"gpu-worker","subsystem":"load",)"));
  EXPECT_THAT(line, HasSubstr("\"message\":\"a \\\"quoted\\\\ \\n \\u0001 \xc3\xa4\"}\n"));
}

TEST(Log, ReplacesBytesThatAreNotUtf8) {
  for (std::string_view bad :
       {"\xff", "\xc3", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xc0\xaf"}) {
    std::string line = logged({.process = "p", .json = true}, Level::kWarn, "s", fmt::format("<{}>", bad));
    EXPECT_THAT(line, HasSubstr("<\xEF\xBF\xBD"));
    EXPECT_THAT(line, Not(HasSubstr(std::string(bad))));
  }
}

TEST(Log, LeavesOutWhatIsBelowTheLevel) {
  EXPECT_EQ(logged({.process = "p", .level = Level::kWarn}, Level::kInfo, "s", "quiet"), "");
  EXPECT_NE(logged({.process = "p", .level = Level::kDebug}, Level::kDebug, "s", "loud"), "");
  EXPECT_FALSE(logged({.process = "p", .level = Level::kWarn}, Level::kWarn, "s", "loud").empty());
}

}  // namespace
}  // namespace strata::obs
