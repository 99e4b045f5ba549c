#include "gateway/admission/turns.h"

#include <gmock/gmock.h>

#include <algorithm>

namespace strata::gateway {
namespace {

using ::testing::ElementsAre;

InLine one(TicketId ticket, int32_t priority = 0, const char* key = "a") {
  return {.ticket = ticket, .key = key_namespace(key), .priority = priority};
}

std::vector<TicketId> order(const std::vector<InLine>& waiting, TurnHistory history = {}) {
  Line line(waiting);
  std::vector<TicketId> tickets;
  while (!line.empty()) tickets.push_back(line.pop(history));
  return tickets;
}

TEST(TurnsTest, LowerNumbersComeFirstThenKeysTakeTurnsThenArrival) {
  EXPECT_THAT(order({one(1), one(2, 5), one(3, -1), one(4), one(5, -1)}), ElementsAre(3, 5, 1, 4, 2));
  EXPECT_THAT(order({one(1), one(2), one(3, 0, "b"), one(4, -1, "b"), one(5, 0, "c")}),
              ElementsAre(4, 1, 5, 3, 2))
      << "b had its turn with 4";
}

TEST(TurnsTest, AKeyOfManyClassesHasOneTurn) {
  TurnHistory history{.last_grant = {{key_namespace("a"), 2}, {key_namespace("b"), 1}}, .grants = 2};
  EXPECT_THAT(order({one(1, 0, "a"), one(2, 0, "b"), one(3, -1, "b")}, history), ElementsAre(3, 1, 2));
}

// Rule K1.
TEST(TurnsTest, OneGrantInEightGoesToThoseThatWerePassed) {
  std::vector<InLine> waiting{one(100, 9), one(101, 3), one(102, 9)};
  for (TicketId ticket = 1; ticket <= 20; ++ticket) waiting.push_back(one(ticket));
  const std::vector<TicketId> tickets = order(waiting);
  EXPECT_EQ(tickets[7], 100u) << "of the later classes it is the one that has waited longest";
  EXPECT_EQ(tickets[15], 101u);
  EXPECT_EQ(std::ranges::count_if(std::span(tickets).first(16), [](TicketId ticket) { return ticket < 100; }),
            14);
}

TEST(TurnsTest, NobodyWaitsForEverWhateverComesAfter) {
  TurnHistory history;
  std::vector<InLine> waiting{one(1000, 100, "late"), one(1001, 50, "late"), one(1002, 100, "other")};
  std::vector<TicketId> granted;
  for (TicketId ticket = 1; ticket <= 40; ++ticket) {  // always two of the first class, of any key
    waiting.push_back(one(2 * ticket, -100, ticket % 3 == 0 ? "late" : "busy"));
    waiting.push_back(one(2 * ticket + 1, -100, "busy"));
    granted.push_back(Line(waiting).pop(history));
    std::erase_if(waiting, [&](const InLine& each) { return each.ticket == granted.back(); });
  }
  for (TicketId ticket : {1000, 1001, 1002})
    EXPECT_THAT(granted, ::testing::Contains(ticket)) << "was passed for ever";
}

TEST(TurnsTest, OneClassAloneIsNobodysPass) {
  TurnHistory history;
  std::vector<InLine> waiting;
  for (TicketId ticket = 1; ticket <= 20; ++ticket) waiting.push_back(one(ticket, 5));
  Line line(waiting);
  while (!line.empty()) line.pop(history);
  EXPECT_EQ(history.passes, 0u);
  EXPECT_EQ(history.grants, 20u);
}

}  // namespace
}  // namespace strata::gateway
