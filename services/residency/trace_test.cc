#include "services/residency/trace.h"

#include <gmock/gmock.h>

#include <cstring>
#include <fstream>

namespace strata::residency {
namespace {

using testing::HasSubstr;

std::string read_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class TraceTest : public testing::Test {
 protected:
  std::string path_ = testing::TempDir() + "/trace_test_" +
                      testing::UnitTest::GetInstance()->current_test_info()->name() + ".bin";
  ~TraceTest() override { std::remove(path_.c_str()); }

  std::string refused(const std::string& bytes) {
    std::ofstream(path_, std::ios::binary) << bytes;
    const auto trace = read_routing_trace(path_);
    if (trace.has_value()) return "read without complaint";
    EXPECT_EQ(trace.error().code(), Code::kDataLoss);
    return std::string(trace.error().message());
  }
};

RoutingTrace small_trace(uint32_t experts) {
  RoutingTrace trace{.layers = 2, .experts = experts, .used = 2, .conversations = {}};
  for (uint16_t i = 0; i < 2; ++i) {
    const auto last = static_cast<uint16_t>(experts - 1);
    trace.conversations.push_back({.tokens = {7, -1},
                                   .roles = {TokenRole::kPrompt, TokenRole::kGenerated},
                                   .domains = {3, i < 1 ? uint8_t{0} : uint8_t{255}},
                                   .picks = {0, 1, last, 2, i, 3, 3, last}});
  }
  return trace;
}

TEST_F(TraceTest, WritesWhatItReads) {
  const std::string recorded = std::string(STRATA_SOURCE_DIR) + "/models/traces/routing.bin";
  const auto trace = read_routing_trace(recorded);
  ASSERT_TRUE(trace) << trace.error().message();
  EXPECT_EQ(trace->conversations.size(), 10U);
  ASSERT_TRUE(write_routing_trace(*trace, path_).ok());
  EXPECT_EQ(read_bytes(path_), read_bytes(recorded));
}

TEST_F(TraceTest, IdsOfMoreThan256ExpertsAreTwoBytesWide) {
  for (const uint32_t experts : {4U, 256U, 257U, 1024U}) {
    ASSERT_TRUE(write_routing_trace(small_trace(experts), path_).ok());
    EXPECT_EQ(read_bytes(path_).size(), 24 + 2 * (4 + 2 * 6 + 8 * (experts > 256 ? 2 : 1))) << experts;
    const auto trace = read_routing_trace(path_);
    ASSERT_TRUE(trace) << trace.error().message();
    const auto expected = small_trace(experts);
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(trace->conversations[i].tokens, expected.conversations[i].tokens);
      EXPECT_EQ(trace->conversations[i].roles, expected.conversations[i].roles);
      EXPECT_EQ(trace->conversations[i].domains, expected.conversations[i].domains);
      EXPECT_EQ(trace->conversations[i].picks, expected.conversations[i].picks);
    }
    EXPECT_EQ(trace->picks(trace->conversations[1], 1, 0)[0], 1U);
  }
}

TEST_F(TraceTest, EachKindOfDamageNamesItsByte) {
  ASSERT_TRUE(write_routing_trace(small_trace(4), path_).ok());
  const std::string good = read_bytes(path_);
  const auto with = [&](std::size_t at, uint32_t value) {
    std::string bytes = good;
    std::memcpy(bytes.data() + at, &value, at < 28 ? 4 : 1);
    return bytes;
  };
  EXPECT_THAT(refused("STRTRC02" + good.substr(8)), HasSubstr("no recorded routing"));
  EXPECT_THAT(refused(""), HasSubstr("byte 0: the file ends, 8 bytes are missing"));
  EXPECT_THAT(refused(with(8, 0)), HasSubstr("0 conversations"));
  EXPECT_THAT(refused(with(12, 1000)), HasSubstr("1000 layers, expected 1 to 256"));
  EXPECT_THAT(refused(with(16, 5000)), HasSubstr("5000 experts"));
  EXPECT_THAT(refused(with(20, 5)), HasSubstr("5 experts per token, expected 1 to 4"));
  EXPECT_THAT(refused(with(24, 0)), HasSubstr("byte 28: 0 tokens"));
  EXPECT_THAT(refused(with(36, 3)), HasSubstr("role 3, expected 0 to 2"));
  EXPECT_THAT(refused(with(40, 4)), HasSubstr("expert 4 of 4"));
  EXPECT_THAT(refused(good + "x"), HasSubstr("something follows"));
  for (std::size_t size = 8; size < good.size(); ++size)
    EXPECT_THAT(refused(good.substr(0, size)), HasSubstr("bytes are missing")) << size;
}

TEST_F(TraceTest, AMissingFileIsNotFound) {
  EXPECT_EQ(read_routing_trace(path_).error().code(), Code::kNotFound);
  EXPECT_EQ(write_routing_trace(small_trace(4), path_ + "/nowhere/x").code(), Code::kNotFound);
}

TEST_F(TraceTest, WritesNothingThatCouldNotBeRead) {
  const auto refuses = [&](auto spoil) {
    RoutingTrace trace = small_trace(4);
    spoil(trace);
    return write_routing_trace(trace, path_).code() == Code::kInvalidArgument;
  };
  EXPECT_TRUE(refuses([](RoutingTrace& t) { t.conversations.clear(); }));
  EXPECT_TRUE(refuses([](RoutingTrace& t) { t.layers = 0; }));
  EXPECT_TRUE(refuses([](RoutingTrace& t) { t.used = 5; }));
  EXPECT_TRUE(refuses([](RoutingTrace& t) { t.conversations[1] = {}; }));
  EXPECT_TRUE(refuses([](RoutingTrace& t) { t.conversations[1].roles.pop_back(); }));
  EXPECT_TRUE(refuses([](RoutingTrace& t) { t.conversations[0].domains.pop_back(); }));
  EXPECT_TRUE(refuses([](RoutingTrace& t) { t.conversations[0].picks.pop_back(); }));
  EXPECT_TRUE(refuses([](RoutingTrace& t) { t.conversations[0].picks[3] = 4; }));
  EXPECT_FALSE(refuses([](RoutingTrace&) {}));
}

}  // namespace
}  // namespace strata::residency
