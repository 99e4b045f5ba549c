// How rows become a trace; the way over the wire is tests/cluster/profile_test.py.
#include "services/cli/routing_recorder.h"

#include <gmock/gmock.h>

namespace strata::cli {
namespace {

using residency::TokenRole;
using testing::ElementsAre;

v1::RoutingShape shape() {
  v1::RoutingShape shape;
  shape.set_layers(2);
  shape.set_experts(300);
  shape.set_used(1);
  return shape;
}
void add_row(v1::RecordRoutingResponse& message, uint32_t sequence, int32_t token, bool prompt,
             std::vector<uint16_t> picks) {
  message.add_sequences(sequence);
  message.add_positions(0);
  message.add_tokens(token);
  message.add_prompt(prompt);
  message.mutable_experts()->append(reinterpret_cast<const char*>(picks.data()),
                                    picks.size() * sizeof(uint16_t));
}

TEST(TraceAssembly, MakesAConversationOfEachSequence) {
  TraceAssembly assembly(shape());
  v1::RecordRoutingResponse message;
  add_row(message, 16, 1, true, {5, 6});
  add_row(message, 17, 2, true, {7, 299});
  add_row(message, 16, 3, false, {8, 9});
  ASSERT_TRUE(assembly.add(message).ok());
  message.Clear();
  add_row(message, 17, 4, false, {1, 2});
  message.set_dropped_rows(3);
  ASSERT_TRUE(assembly.add(message).ok());
  const residency::RoutingTrace& trace = assembly.trace();
  EXPECT_EQ(trace.layers, 2u);
  EXPECT_EQ(trace.experts, 300u);
  EXPECT_EQ(trace.used, 1u);
  ASSERT_EQ(trace.conversations.size(), 2u);
  EXPECT_THAT(trace.conversations[0].tokens, ElementsAre(1, 3));
  EXPECT_THAT(trace.conversations[0].roles, ElementsAre(TokenRole::kPrompt, TokenRole::kGenerated));
  EXPECT_THAT(trace.conversations[0].domains, ElementsAre(0, 0));
  EXPECT_THAT(trace.conversations[0].picks, ElementsAre(5, 6, 8, 9));
  EXPECT_THAT(trace.conversations[1].picks, ElementsAre(7, 299, 1, 2));
  EXPECT_EQ(assembly.dropped_rows(), 3u);
}

TEST(TraceAssembly, RefusesMessagesThatDoNotFit) {
  v1::RecordRoutingResponse good;
  add_row(good, 16, 1, true, {5, 6});
  const auto refused = [&](const auto& spoil) {
    TraceAssembly assembly(shape());
    v1::RecordRoutingResponse message = good;
    spoil(message);
    return assembly.add(message).code() == Code::kDataLoss;
  };
  EXPECT_TRUE(refused([](auto& message) { message.mutable_experts()->pop_back(); }));
  EXPECT_TRUE(refused([](auto& message) { message.mutable_experts()->append("abcd"); }));
  EXPECT_TRUE(refused([](auto& message) { message.add_tokens(1); }));
  EXPECT_TRUE(refused([](auto& message) { message.clear_prompt(); }));
  EXPECT_TRUE(refused([](auto& message) { message.clear_sequences(); }));
  EXPECT_FALSE(refused([](auto&) {}));
}

}  // namespace
}  // namespace strata::cli
