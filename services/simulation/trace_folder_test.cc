#include "services/simulation/trace_folder.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "services/simulation/generate.h"

namespace strata::simulation {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class TraceFolderTest : public testing::Test {
 protected:
  TraceFolderTest() {
    std::string form = testing::TempDir() + "/strata-traces-XXXXXX";
    folder_ = ::mkdtemp(form.data());
  }
  ~TraceFolderTest() override { std::filesystem::remove_all(folder_); }

  void put(const std::string& name, std::string_view spec) {
    const auto trace = generate(*parse_generate_spec(spec));
    ASSERT_TRUE(residency::write_routing_trace(trace, folder_ / name).ok());
  }
  void put_text(const std::string& name, const std::string& text) { std::ofstream(folder_ / name) << text; }
  Status refused(uint32_t layers = 0) {
    const auto read = read_trace_folder(folder_, layers);
    return read.has_value() ? Status() : read.error();
  }

  std::filesystem::path folder_;
};

TEST_F(TraceFolderTest, ReadsTheRecordedConversationsWithoutTheDraftLayer) {
  const auto read = read_trace_folder(std::string(STRATA_SOURCE_DIR) + "/models/traces", 0);
  ASSERT_TRUE(read.has_value()) << read.error().message();
  EXPECT_EQ(read->trace.layers, 8U);
  ASSERT_EQ(read->names.size(), 10U);
  EXPECT_EQ(read->names.front(), "animals");
  EXPECT_EQ(read->names.back(), "long-walk");
}

TEST_F(TraceFolderTest, PutsTheFilesTogetherInTheOrderOfTheirNames) {
  put("b.bin", "tokens=10,conversations=2,layers=3");
  put("a.bin", "tokens=20,layers=3");
  put_text("c.bin", "something else");
  put_text("a.json", R"({"conversations": [{"name": "first"}]})");
  const auto read = read_trace_folder(folder_, 0);
  ASSERT_TRUE(read.has_value()) << read.error().message();
  EXPECT_THAT(read->names, ElementsAre("first", "b/0", "b/1"));
  EXPECT_EQ(read->trace.layers, 3U);
  ASSERT_EQ(read->trace.conversations.size(), 3U);
  EXPECT_EQ(read->trace.conversations[0].tokens.size(), 52U);
  const auto one = read_trace_folder(folder_ / "b.bin", 0);
  ASSERT_TRUE(one.has_value());
  EXPECT_EQ(one->names.size(), 2U);
}

TEST_F(TraceFolderTest, TakesAsManyLayersAsAskedFor) {
  put("a.bin", "tokens=10,layers=4,experts=8,used=2");
  put_text("a.json", R"({"layers": "0-2 are the trunk's; 3 is the draft layer"})");
  const auto whole = generate(*parse_generate_spec("tokens=10,layers=4,experts=8,used=2"));
  EXPECT_EQ(read_trace_folder(folder_, 0)->trace.layers, 3U);
  EXPECT_EQ(read_trace_folder(folder_, 4)->trace.layers, 4U);
  const auto two = read_trace_folder(folder_, 2);
  ASSERT_EQ(two->trace.layers, 2U);
  for (std::size_t token = 0; token < 42; ++token) {
    const auto cut = two->trace.picks(two->trace.conversations[0], token, 1);
    const auto all = whole.picks(whole.conversations[0], token, 1);
    EXPECT_TRUE(std::equal(cut.begin(), cut.end(), all.begin(), all.end()));
  }
  EXPECT_THAT(refused(5).message(), HasSubstr("has 4 layers, 5 are wanted"));
}

TEST_F(TraceFolderTest, SaysWhatIsWrong) {
  EXPECT_EQ(refused().code(), Code::kNotFound);
  EXPECT_EQ(read_trace_folder(folder_ / "nowhere", 0).error().code(), Code::kNotFound);
  put("a.bin", "tokens=10,layers=3");
  put_text("a.json", "{");
  EXPECT_THAT(refused().message(), HasSubstr("a.json: is no JSON"));
  put_text("a.json", R"({"layers": 7, "conversations": "none"})");
  EXPECT_TRUE(refused().ok()) << "what it does not say is not needed";
  put("b.bin", "tokens=10,layers=4");
  EXPECT_EQ(refused().code(), Code::kInvalidArgument);
  EXPECT_THAT(refused().message(), HasSubstr("4 layers of 64 experts"));
  put_text("b.bin", "STRTRC01 but then nothing");
  EXPECT_EQ(refused().code(), Code::kDataLoss);
}

}  // namespace
}  // namespace strata::simulation
