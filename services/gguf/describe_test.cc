#include "services/gguf/describe.h"

#include <gmock/gmock.h>

#include <boost/json.hpp>

#include "services/gguf/file_builder.h"
#include "services/gguf/printable.h"

namespace strata::gguf {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string sample() {
  using B = FileBuilder;
  std::string numbers;
  for (int32_t i = 0; i < 100; ++i) numbers += B::number(i);
  const std::string inner = B::number<uint32_t>(4) + B::number<uint64_t>(1) + B::number<uint32_t>(9);
  return B()
      .key("general.name", ValueType::kString, B::text("line one\nline\x1b two \xff\xc3\xa4"))
      .key("long", ValueType::kString, B::text(std::string(1000, 'x')))
      .key("eps", ValueType::kF32, B::number(1e-6F))
      .key("nan", ValueType::kF64, B::number(std::numeric_limits<double>::quiet_NaN()))
      .key("big", ValueType::kU64, B::number(std::numeric_limits<uint64_t>::max()))
      .array("numbers", ValueType::kI32, 100, numbers)
      .array("nested", ValueType::kArray, 1, inner)
      .tensor("a", TensorType::kF32, {2, 3}, std::string(24, '\0'))
      .tensor("b", TensorType::kQ8_0, {64}, std::string(68, '\0'))
      .tensor("c", TensorType::kF32, {1}, std::string(4, '\0'))
      .build();
}

class DescribeTest : public testing::Test {
 protected:
  const std::string bytes_ = sample();
  const GgufFile file_ = *GgufFile::parse(bytes_of(bytes_), "sample.gguf");
};

TEST_F(DescribeTest, PutsEachKeyOnOneShortLine) {
  const std::string text = describe_text(file_, false);
  EXPECT_THAT(text, HasSubstr("line one\\nline\\x1b two \uFFFDä\n"));
  EXPECT_THAT(text, HasSubstr(std::string(120, 'x') + "...\n"));
  EXPECT_THAT(text, Not(HasSubstr(std::string(121, 'x'))));
  EXPECT_THAT(text, HasSubstr("1e-06"));
  EXPECT_THAT(text, HasSubstr("i32[100]"));
  EXPECT_THAT(text, HasSubstr("[0, 1, 2, 3, 4, 5, 6, 7, ...]"));
  EXPECT_THAT(text, HasSubstr("[[9]]"));
}

TEST_F(DescribeTest, AddsUpTheTensorsOfEachType) {
  const auto totals = totals_by_type(file_);
  ASSERT_EQ(totals.size(), 2U);
  EXPECT_EQ(totals[0].type, TensorType::kQ8_0);
  EXPECT_EQ(totals[0].bytes, 68U);
  EXPECT_EQ(totals[1].tensors, 2U);
  EXPECT_EQ(totals[1].bytes, 28U);
}

TEST_F(DescribeTest, ListsTensorsOnRequest) {
  EXPECT_THAT(describe_text(file_, true), HasSubstr("[2, 3]"));
  EXPECT_THAT(describe_text(file_, false), Not(HasSubstr("[2, 3]")));
}

TEST_F(DescribeTest, WritesJsonThatAParserTakes) {
  const auto root = boost::json::parse(describe_json(file_));
  EXPECT_EQ(root.at("version").as_int64(), 3);
  const auto& pairs = root.at("metadata").as_array();
  ASSERT_EQ(pairs.size(), 7U);
  EXPECT_EQ(pairs[0].at("value").as_string(), "line one\nline\x1b two \uFFFDä");
  EXPECT_EQ(pairs[1].at("value").as_string().size(), 1000U);
  EXPECT_EQ(pairs[2].at("value").as_double(), 1e-6);
  EXPECT_EQ(pairs[3].at("value").as_string(), "nan");
  EXPECT_EQ(pairs[4].at("value").as_uint64(), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(pairs[5].at("value").at("count").as_int64(), 100);
  EXPECT_EQ(pairs[5].at("value").at("values").as_array().size(), 16U);
  EXPECT_EQ(root.at("tensors").at(0).at("dims"), boost::json::value({2, 3}));
  EXPECT_EQ(root.at("fingerprint").as_string(), file_.fingerprint());
}

TEST(PrintableTest, ReplacesWhatIsNoUtf8) {
  EXPECT_EQ(printable("ok ä 漢 🙂"), "ok ä 漢 🙂");
  const std::string replaced = "\uFFFD";
  EXPECT_EQ(printable("\xc0\xaf"), replaced + replaced) << "overlong";
  EXPECT_EQ(printable("\xed\xa0\x80"), replaced + replaced + replaced) << "surrogate";
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), replaced + replaced + replaced + replaced) << "beyond U+10FFFF";
  EXPECT_EQ(printable("\xe2\x82"), replaced + replaced) << "cut off";
  EXPECT_EQ(printable("\xc2\x9b"), "\\x9b") << "C1 control";
}

TEST(PrintableTest, CutsByCharactersNotBytes) {
  EXPECT_EQ(printable("äöü", 2), "äö...");
  EXPECT_EQ(printable("äöü", 3), "äöü");
  EXPECT_EQ(printable("", 0), "");
}

}  // namespace
}  // namespace strata::gguf
