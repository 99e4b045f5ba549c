// Properties of the drawn routing over many picks, and the replay of traces.
#include "services/model/synthetic_routing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <numeric>
#include <set>

#include "services/residency/trace.h"

namespace strata::model {
namespace {

using ::testing::HasSubstr;
using Ids = std::vector<uint16_t>;

std::unique_ptr<RoutingOverride> make(std::string_view text, const RoutingShape& shape) {
  const auto spec = parse_synthetic_routing(text);
  EXPECT_TRUE(spec) << spec.error().message();
  auto routing = make_synthetic_routing(*spec, shape);
  EXPECT_TRUE(routing) << routing.error().message();
  return std::move(*routing);
}

RoutingShape shape_of(uint32_t layers, uint32_t experts, uint32_t used) {
  return {.experts = std::vector<uint32_t>(layers, experts), .used = used};
}

Ids choose(RoutingOverride& routing, uint32_t layer, RoutingPlace place, uint32_t used) {
  Ids ids(used);
  routing.choose(layer, place, ids);
  return ids;
}

// How often each expert of a layer is picked at position 0 of so many sequences, so that nothing drifts.
std::vector<uint32_t> counts_at_the_start(RoutingOverride& routing, uint32_t layer, uint32_t experts,
                                          uint32_t used, uint32_t sequences) {
  std::vector<uint32_t> counts(experts);
  for (uint32_t sequence = 0; sequence < sequences; ++sequence)
    for (const uint16_t id : choose(routing, layer, {.sequence = sequence, .position = 0}, used))
      ++counts[id];
  return counts;
}

double share_of_hottest(std::vector<uint32_t> counts, std::size_t hottest) {
  std::ranges::sort(counts, std::greater());
  const auto sum = [&](std::size_t n) {
    return std::accumulate(counts.begin(), counts.begin() + static_cast<long>(n), 0.0);
  };
  return sum(hottest) / sum(counts.size());
}

// The hot half of a layer as it stands at a position, from what is picked there.
std::set<uint16_t> hot_half(RoutingOverride& routing, uint32_t position, uint32_t experts) {
  std::vector<uint32_t> counts(experts);
  for (uint32_t sequence = 0; sequence < 20000; ++sequence)
    for (const uint16_t id : choose(routing, 0, {.sequence = sequence, .position = position}, 10))
      ++counts[id];
  Ids order(experts);
  std::iota(order.begin(), order.end(), uint16_t{0});
  std::ranges::sort(order, std::greater(), [&](uint16_t id) { return counts[id]; });
  return {order.begin(), order.begin() + experts / 2};
}

TEST(SyntheticRouting, SharesOfTheHottestExpertsAreThoseAskedFor) {
  struct Case {
    const char* text;
    double eighth, quarter, half;
  };
  constexpr uint32_t kExperts = 512, kUsed = 10, kSequences = 10000;  // 100,000 picks
  for (const Case& c : {Case{"mild", 0.59, 0.79, 0.95}, Case{"strong", 0.80, 0.93, 0.99},
                        Case{"skew=0.3/0.5/0.8,seed=9", 0.3, 0.5, 0.8}}) {
    SCOPED_TRACE(c.text);
    auto routing = make(c.text, shape_of(2, kExperts, kUsed));
    const auto counts = counts_at_the_start(*routing, 1, kExperts, kUsed, kSequences);
    // Some of each part's experts are picked a little more by chance, hence the upper bounds.
    for (const auto& [part, share] : {std::pair{8, c.eighth}, {4, c.quarter}, {2, c.half}}) {
      EXPECT_GT(share_of_hottest(counts, kExperts / part), share - 0.01);
      EXPECT_LT(share_of_hottest(counts, kExperts / part), share + 0.02);
    }
  }
  auto even = make("uniform", shape_of(1, kExperts, kUsed));
  const auto counts = counts_at_the_start(*even, 0, kExperts, kUsed, kSequences);
  const double mean = double{kUsed} * kSequences / kExperts;
  EXPECT_GT(*std::ranges::min_element(counts), 0.6 * mean);
  EXPECT_LT(*std::ranges::max_element(counts), 1.4 * mean);
}

TEST(SyntheticRouting, IdsAreDifferentAndInRangeInAnyShape) {
  for (const auto& [experts, used] :
       {std::pair{512u, 10u}, {64u, 6u}, {16u, 16u}, {8u, 8u}, {5u, 4u}, {2u, 2u}, {1u, 1u}}) {
    auto routing = make("strong,drift=0.5", shape_of(3, experts, used));
    for (uint32_t position = 0; position < 3000; position += 7) {
      const Ids ids = choose(*routing, position % 3, {.sequence = 1, .position = position}, used);
      EXPECT_EQ(std::set(ids.begin(), ids.end()).size(), used);
      EXPECT_LT(*std::ranges::max_element(ids), experts);
    }
  }
}

TEST(SyntheticRouting, IsAFunctionOfLayerAndPlaceWhateverWasAskedBefore) {
  const RoutingShape shape = shape_of(4, 128, 8);
  struct Question {
    uint32_t layer;
    RoutingPlace place;
  };
  std::vector<Question> questions;
  for (uint32_t layer = 0; layer < 4; ++layer)
    for (const uint32_t position : {0u, 1u, 63u, 64u, 5000u, 9000u, 100000u, 262143u})
      for (const uint32_t sequence : {0u, 17u, 160000u}) questions.push_back({layer, {sequence, position}});
  auto forward = make("mild,drift=0.2,seed=5", shape), backward = make("mild,drift=0.2,seed=5", shape);
  std::vector<Ids> there, back;
  for (const Question& q : questions) there.push_back(choose(*forward, q.layer, q.place, 8));
  for (auto q = questions.rbegin(); q != questions.rend(); ++q)
    back.insert(back.begin(), choose(*backward, q->layer, q->place, 8));
  EXPECT_EQ(there, back);
  auto other = make("mild,drift=0.2,seed=6", shape);
  std::size_t equal = 0;
  for (std::size_t i = 0; i < questions.size(); ++i)
    equal += choose(*other, questions[i].layer, questions[i].place, 8) == there[i] ? 1 : 0;
  EXPECT_LT(equal, 2u);
}

TEST(SyntheticRouting, LayersAndSequencesAndPositionsDiffer) {
  auto routing = make("mild", shape_of(2, 512, 10));
  const Ids one = choose(*routing, 0, {.sequence = 1, .position = 1}, 10);
  EXPECT_NE(one, choose(*routing, 1, {.sequence = 1, .position = 1}, 10));
  EXPECT_NE(one, choose(*routing, 0, {.sequence = 2, .position = 1}, 10));
  EXPECT_NE(one, choose(*routing, 0, {.sequence = 1, .position = 2}, 10));
}

TEST(SyntheticRouting, TheHotHalfDriftsAtTheRateAskedFor) {
  constexpr uint32_t kExperts = 128;
  const auto changed = [&](std::string_view text, uint32_t position) {
    auto routing = make(text, shape_of(1, kExperts, 10));
    const auto before = hot_half(*routing, 0, kExperts), after = hot_half(*routing, position, kExperts);
    return std::ranges::count_if(after, [&](uint16_t id) { return !before.contains(id); });
  };
  EXPECT_EQ(changed("strong,drift=0", 64 * 100), 0);
  EXPECT_EQ(changed("strong,drift=0.125", 63), 0);
  // 64 hot ones: an eighth is 8 exchanges, of which few meet the same expert twice.
  EXPECT_GE(changed("strong,drift=0.125", 64), 6);
  EXPECT_LE(changed("strong,drift=0.125", 64), 8);
  // In the long run nothing is left of the first hot half but what chance brings back.
  EXPECT_GT(changed("strong,drift=0.125", 64 * 200), 16);
}

TEST(SyntheticRouting, NamesThePartOfTheTextThatIsWrong) {
  for (const char* text : {"", "mlid", "mild,", "skew=0.5/0.4/0.9", "skew=0.5/0.6", "skew=0.5/0.6/1.1",
                           "skew=a/b/c", "drift=2", "drift=-1", "seed=x", "trace:"}) {
    const auto spec = parse_synthetic_routing(text);
    ASSERT_FALSE(spec) << text;
    EXPECT_EQ(spec.error().code(), Code::kInvalidArgument);
  }
  EXPECT_THAT(parse_synthetic_routing("mild,drfit=1").error().message(), HasSubstr("'drfit=1'"));
  EXPECT_EQ(parse_synthetic_routing("trace:a,b")->trace, "a,b");
}

const std::string kDemoTrace = std::string(STRATA_SOURCE_DIR) + "/models/traces/routing.bin";

TEST(ReplayedRouting, GivesWhatWasRecordedToAModelOfTheSameShape) {
  const auto trace = residency::read_routing_trace(kDemoTrace);
  ASSERT_TRUE(trace) << trace.error().message();
  EXPECT_EQ(trace->experts, 64u);
  auto routing = make("trace:" + kDemoTrace, shape_of(8, 64, trace->used));
  for (uint32_t sequence = 0; sequence < trace->conversations.size(); ++sequence) {
    const auto& conversation = trace->conversations[sequence];
    for (uint32_t position = 0; position < conversation.tokens.size(); ++position) {
      const auto recorded = trace->picks(conversation, position, 3);
      ASSERT_EQ(choose(*routing, 3, {sequence, position}, trace->used),
                Ids(recorded.begin(), recorded.end()));
    }
  }
}

TEST(ReplayedRouting, IsStretchedOverMoreExpertsLayersAndPicks) {
  auto routing = make("trace:" + kDemoTrace, shape_of(48, 512, 10));
  const auto trace = residency::read_routing_trace(kDemoTrace);
  ASSERT_TRUE(trace);
  const Ids ids = choose(*routing, 20, {.sequence = 2, .position = 100000}, 10);
  EXPECT_EQ(std::set(ids.begin(), ids.end()).size(), 10u);
  const auto& conversation = trace->conversations[2];
  const auto recorded = trace->picks(conversation, 100000 % conversation.tokens.size(), 20 % trace->layers);
  for (uint32_t i = 0; i < trace->used; ++i) EXPECT_EQ(ids[i] / 8, recorded[i]) << "of each range of 8 one";
}

TEST(ReplayedRouting, RefusesTracesThatDoNotFit) {
  const auto refused = [](const std::string& path, uint32_t experts) {
    const auto routing =
        make_synthetic_routing(*parse_synthetic_routing("trace:" + path), shape_of(1, experts, 2));
    EXPECT_FALSE(routing) << path;
    return routing ? std::string() : routing.error().message();
  };
  EXPECT_THAT(refused("/nowhere", 64), HasSubstr("/nowhere"));
  EXPECT_THAT(refused(kDemoTrace, 32), HasSubstr("64 experts"));
  const std::string bytes = [] {
    std::ifstream in(kDemoTrace, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  }();
  const std::string path = ::testing::TempDir() + "/trace.bin";
  const auto with = [&](const std::string& content) {
    std::ofstream(path, std::ios::binary) << content;
    return refused(path, 64);
  };
  EXPECT_THAT(with(""), HasSubstr("byte 0: the file ends"));
  EXPECT_THAT(with("STRTRC02" + bytes.substr(8)), HasSubstr("no recorded routing"));
  EXPECT_THAT(with(bytes.substr(0, bytes.size() - 1)), HasSubstr("the file ends"));
  EXPECT_THAT(with(bytes + "x"), HasSubstr("something follows"));
  std::string wrong = bytes;
  wrong.back() = '\x40';
  EXPECT_THAT(with(wrong), HasSubstr("expert 64 of 64"));
  std::remove(path.c_str());
}

}  // namespace
}  // namespace strata::model
