#include <gmock/gmock.h>

#include <limits>

#include "services/gguf/file_builder.h"
#include "services/gguf/gguf_file.h"
#include "services/gguf/integer.h"

namespace strata::gguf {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class AccessorsTest : public testing::Test {
 protected:
  static std::string bytes() {
    using B = FileBuilder;
    return B()
        .key("u8", ValueType::kU8, B::number<uint8_t>(200))
        .key("i8", ValueType::kI8, B::number<int8_t>(-3))
        .key("i32", ValueType::kI32, B::number<int32_t>(70000))
        .key("u64", ValueType::kU64, B::number(std::numeric_limits<uint64_t>::max()))
        .key("f32", ValueType::kF32, B::number(0.5F))
        .key("f64", ValueType::kF64, B::number(0.25))
        .key("bool", ValueType::kBool, B::number<uint8_t>(1))
        .key("string", ValueType::kString, B::text("text"))
        .array("i16s", ValueType::kI16, 2, B::number<int16_t>(1) + B::number<int16_t>(-2))
        .array("u64s", ValueType::kU64, 1, B::number(uint64_t{1} << 63))
        .array("bools", ValueType::kBool, 3, std::string("\1\0\5", 3))
        .array("strings", ValueType::kString, 2, B::text("") + B::text("b"))
        .array("empty", ValueType::kF32, 0, "")
        .build();
  }

  template <class T>
  static void expect_wrong(const Result<T>& result, const std::string& part) {
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(result.error().message(), HasSubstr("f.gguf: byte "));
    EXPECT_THAT(result.error().message(), HasSubstr(part));
  }

  const std::string bytes_ = bytes();
  const GgufFile file_ = *GgufFile::parse(bytes_of(bytes_), "f.gguf");
};

TEST_F(AccessorsTest, TakesIntegersOfEveryType) {
  EXPECT_EQ(*file_.get_uint("u8"), 200U);
  EXPECT_EQ(*file_.get_uint("i32"), 70000U);
  EXPECT_EQ(*file_.get_uint("u64"), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(*file_.get_int("i8"), -3);
  EXPECT_EQ(*file_.get_int("u8"), 200);
}

TEST_F(AccessorsTest, RefusesWhatDoesNotFit) {
  expect_wrong(file_.get_uint("i8"), "key 'i8' has i8 -3, expected an integer from 0");
  expect_wrong(file_.get_uint("i32", 65535), "i32 70000, expected an integer from 0 to 65535");
  expect_wrong(file_.get_int("u64"), "u64 18446744073709551615");
  expect_wrong(file_.get_uint("bool"), "bool true");
  expect_wrong(file_.get_uint("f32"), "f32 0.5");
  expect_wrong(file_.get_float("string"), "string 'text', expected a number");
  expect_wrong(file_.get_string("i16s"), "array of 2 i16, expected a string");
}

TEST_F(AccessorsTest, TakesAnyNumberAsFloat) {
  EXPECT_EQ(*file_.get_float("f32"), 0.5);
  EXPECT_EQ(*file_.get_float("f64"), 0.25);
  EXPECT_EQ(*file_.get_float("i8"), -3.0);
}

TEST_F(AccessorsTest, FallsBackOnlyWhenTheKeyIsAbsent) {
  EXPECT_EQ(*file_.get_uint_or("none", 7), 7U);
  EXPECT_EQ(*file_.get_float_or("none", 1.5), 1.5);
  EXPECT_TRUE(*file_.get_bool_or("none", true));
  EXPECT_TRUE(*file_.get_bool_or("bool", false));
  expect_wrong(file_.get_uint_or("string", 7), "string 'text'");
  expect_wrong(file_.get_float_or("string", 7), "string 'text'");
  expect_wrong(file_.get_bool_or("u8", true), "u8 200, expected a bool");
  EXPECT_EQ(file_.get_uint("none").error().code(), Code::kNotFound);
  EXPECT_EQ(file_.get_string_array("none").error().code(), Code::kNotFound);
}

TEST_F(AccessorsTest, ReadsArrays) {
  EXPECT_THAT(*file_.get_int_array("i16s"), ElementsAre(1, -2));
  EXPECT_THAT(*file_.get_uint_array("u64s"), ElementsAre(uint64_t{1} << 63));
  EXPECT_THAT(*file_.get_bool_array("bools"), ElementsAre(true, false, true));
  EXPECT_THAT(*file_.get_string_array("strings"), ElementsAre("", "b"));
  expect_wrong(file_.get_uint_array("i16s"), "i16 -2 as element 1, expected an array of integers from 0");
  expect_wrong(file_.get_int_array("u64s"), "as element 0");
  expect_wrong(file_.get_string_array("i16s"), "i16 1 as element 0");
  expect_wrong(file_.get_string_array("string"), "string 'text', expected an array of strings");
  EXPECT_TRUE(file_.get_int_array("empty")->empty()) << "no element that could have the wrong type";
}

TEST_F(AccessorsTest, FindsEveryKeyAndNoOther) {
  for (const KeyValue& pair : file_.metadata()) EXPECT_EQ(file_.find(pair.key), &pair.value) << pair.key;
  EXPECT_EQ(file_.find(""), nullptr);
  EXPECT_EQ(file_.find("zzz"), nullptr);
}

}  // namespace
}  // namespace strata::gguf
