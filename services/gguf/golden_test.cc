// Every file that the golden indexes name: what is in the good ones, and that the bad ones are refused with a
// useful text.

#include <gtest/gtest.h>

#include <bit>
#include <boost/json.hpp>
#include <filesystem>

#include "services/gguf/gguf_file.h"
#include "services/gguf/value_reader.h"
#include "tests/support/test_data.h"

namespace strata::gguf {
namespace {

namespace json = boost::json;
using std::filesystem::path;

json::array index_of(const path& folder) {
  return json::parse(tests::read_text(folder / "index.json")).at("files").as_array();
}

std::string text_of(const json::value& value, const char* name) {
  return std::string(value.at(name).as_string());
}

// As the index writes them: integers in decimal, floats as bit patterns, bools and strings as themselves.
json::value index_form(const Value& value) {
  struct Form {
    ValueType type;
    json::value operator()(uint64_t number) const { return json::value(std::to_string(number)); }
    json::value operator()(int64_t number) const { return json::value(std::to_string(number)); }
    json::value operator()(double number) const {
      if (type == ValueType::kF64)
        return json::value(fmt::format("0x{:016x}", std::bit_cast<uint64_t>(number)));
      return json::value(fmt::format("0x{:08x}", std::bit_cast<uint32_t>(static_cast<float>(number))));
    }
    json::value operator()(bool flag) const { return json::value(flag); }
    json::value operator()(std::string_view text) const { return json::value(json::string(text)); }
    json::value operator()(const std::shared_ptr<const Array>& array) const {
      json::array elements;
      visit_elements(*array, [&](const Value& element) {
        elements.push_back(index_form(element));
        return true;
      });
      return elements;
    }
  };
  return std::visit(Form{value.type}, value.data);
}

std::string index_type(ValueType type) {
  if (type == ValueType::kString) return "str";
  if (type == ValueType::kArray) return "arr";
  return std::string(value_type_name(type));
}

uint32_t crc32(std::span<const std::byte> bytes) {
  uint32_t crc = ~0U;
  for (const std::byte byte : bytes) {
    crc ^= static_cast<uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (0xEDB88320U & (0U - (crc & 1)));
  }
  return ~crc;
}

void expect_metadata(const GgufFile& file, const json::array& expected) {
  ASSERT_EQ(file.metadata().size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const KeyValue& pair = file.metadata()[i];
    SCOPED_TRACE(std::string(pair.key));
    EXPECT_EQ(pair.key, text_of(expected[i], "key"));
    EXPECT_EQ(index_type(pair.value.type), text_of(expected[i], "type"));
    EXPECT_EQ(index_form(pair.value), expected[i].at("value"));
    EXPECT_EQ(file.find(pair.key), &pair.value);
    if (pair.value.type != ValueType::kArray) continue;
    const auto& array = std::get<std::shared_ptr<const Array>>(pair.value.data);
    EXPECT_EQ(index_type(array->element), text_of(expected[i], "of"));
  }
}

void expect_tensors(const GgufFile& file, std::span<const TensorInfo> tensors, const json::array& expected) {
  ASSERT_EQ(tensors.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const TensorInfo& tensor = tensors[i];
    SCOPED_TRACE(std::string(tensor.name));
    EXPECT_EQ(tensor.name, text_of(expected[i], "name"));
    EXPECT_EQ(tensor_type_info(tensor.type).name, text_of(expected[i], "type"));
    json::array dims;
    for (uint32_t d = 0; d < tensor.dim_count; ++d) dims.push_back(static_cast<int64_t>(tensor.dims[d]));
    EXPECT_EQ(dims, expected[i].at("dims").as_array());
    EXPECT_EQ(static_cast<int64_t>(tensor.file_offset), expected[i].at("file_offset").as_int64());
    EXPECT_EQ(static_cast<int64_t>(tensor.bytes), expected[i].at("bytes").as_int64());
    EXPECT_EQ(fmt::format("{:08x}", crc32(tensor.data)), text_of(expected[i], "crc32"));
    EXPECT_EQ(file.find_tensor(tensor.name), &tensor);
  }
}

// A sharded model has the tensors of its later shards behind those that the index lists for the first.
void expect_content(const GgufFile& file, const json::value& entry) {
  EXPECT_EQ(file.version(), entry.at("version").as_int64());
  EXPECT_EQ(file.alignment(), entry.at("alignment").as_int64());
  EXPECT_EQ(static_cast<int64_t>(file.data_offset()), entry.at("data_offset").as_int64());
  expect_metadata(file, entry.at("metadata").as_array());
  std::size_t of_first_shard = 0;
  while (of_first_shard < file.tensors().size() && file.tensors()[of_first_shard].shard == 0)
    ++of_first_shard;
  expect_tensors(file, file.tensors().first(of_first_shard), entry.at("tensors").as_array());
}

path good_folder() { return tests::gguf_folder() / "gguf-good"; }
path bad_folder() { return tests::gguf_folder() / "gguf-bad"; }

TEST(GgufGolden, LoadsEveryGoodFileWithExactlyItsContent) {
  int accepted = 0;
  for (const json::value& entry : index_of(good_folder())) {
    const std::string file_path = good_folder() / text_of(entry, "file");
    SCOPED_TRACE(file_path);
    const std::string expect = text_of(entry, "expect");
    const auto file = GgufFile::open(file_path);
    if (expect == "accept-as-shard") continue;
    // This reader takes the unusual but harmless files ("either"), too.
    ASSERT_TRUE(expect == "accept" || expect == "either") << expect;
    ASSERT_TRUE(file.has_value()) << file.error().message();
    expect_content(*file, entry);
    ++accepted;
  }
  EXPECT_GT(accepted, 0);
}

TEST(GgufGolden, FindsNothingWrongWithTheValuesOfGoodWeights) {
  for (const json::value& entry : index_of(good_folder())) {
    if (text_of(entry, "expect") != "accept") continue;
    const auto file = GgufFile::open(good_folder() / text_of(entry, "file"), {.check_values = true});
    EXPECT_TRUE(file.has_value()) << file.error().message();
  }
}

TEST(GgufGolden, SaysWhichFileToOpenInsteadOfALaterShard) {
  for (const json::value& entry : index_of(good_folder())) {
    if (text_of(entry, "expect") != "accept-as-shard") continue;
    const std::string file_path = good_folder() / text_of(entry, "file");
    SCOPED_TRACE(file_path);
    const auto as_model = GgufFile::open(file_path);
    ASSERT_FALSE(as_model.has_value());
    EXPECT_EQ(as_model.error().code(), Code::kInvalidArgument);
    EXPECT_NE(as_model.error().message().find(file_path), std::string::npos);
    EXPECT_NE(as_model.error().message().find("-00001-of-"), std::string::npos) << as_model.error().message();

    const auto bytes = tests::read_array<std::byte>(file_path);
    const auto by_itself = GgufFile::parse(bytes, file_path);
    ASSERT_TRUE(by_itself.has_value()) << by_itself.error().message();
    expect_content(*by_itself, entry);
  }
}

TEST(GgufGolden, AddsTheTensorsOfLaterShards) {
  const json::array index = index_of(good_folder());
  for (const json::value& entry : index) {
    const std::string name = text_of(entry, "file");
    const auto form = name.find("-00001-of-");
    if (form == std::string::npos) continue;
    SCOPED_TRACE(name);
    const auto file = GgufFile::open(good_folder() / name);
    ASSERT_TRUE(file.has_value()) << file.error().message();
    for (const json::value& later : index) {
      const std::string later_name = text_of(later, "file");
      if (later_name.substr(0, form) != name.substr(0, form) ||
          later_name.substr(form + 6) != name.substr(form + 6))
        continue;
      std::vector<TensorInfo> of_shard;
      for (const TensorInfo& tensor : file->tensors()) {
        if (file->shard_paths()[tensor.shard] == (good_folder() / later_name).string())
          of_shard.push_back(tensor);
      }
      ASSERT_EQ(of_shard.size(), later.at("tensors").as_array().size());
      for (std::size_t i = 0; i < of_shard.size(); ++i) {
        EXPECT_EQ(of_shard[i].name, text_of(later.at("tensors").at(i), "name"));
        EXPECT_EQ(fmt::format("{:08x}", crc32(of_shard[i].data)),
                  text_of(later.at("tensors").at(i), "crc32"));
      }
    }
  }
}

TEST(GgufGolden, RefusesEveryBadFileAndNamesIt) {
  int rejected = 0;
  for (const json::value& entry : index_of(bad_folder())) {
    const std::string file_path = bad_folder() / text_of(entry, "file");
    SCOPED_TRACE(file_path + ": " + text_of(entry, "what"));
    const std::string expect = text_of(entry, "expect");
    ASSERT_TRUE(expect == "reject" || expect == "reject-when-checked") << expect;
    const auto unchecked = GgufFile::open(file_path);
    EXPECT_EQ(unchecked.has_value(), expect == "reject-when-checked");
    const auto checked = GgufFile::open(file_path, {.check_values = true});
    ASSERT_FALSE(checked.has_value());
    EXPECT_NE(checked.error().message().find(file_path), std::string::npos) << checked.error().message();
    ++rejected;
    if (checked.error().code() == Code::kNotFound) continue;  // a missing shard: nothing was found
    EXPECT_NE(checked.error().message().find("expected"), std::string::npos) << checked.error().message();
  }
  EXPECT_GT(rejected, 0);
}

}  // namespace
}  // namespace strata::gguf
