// Either side goes away at each step of an exchange. Seen from the cache manager: whatever was in flight is
// forgotten, late answers of the old gpu-worker reach nobody, and no new attachment begins while a copy of
// the old one may still be writing. Seen from the gpu-worker: what is reserved when the attachment ends is
// emptied (resident_table_test.cc), so the next cache manager begins with what its table shows.

#include "cache-manager/exchange_fixture.h"

namespace strata::cache_manager {
namespace {

// How far the exchange has come when the gpu-worker goes.
// (Land goes out with the copy.)
enum class Reached { kRetireSent, kReserved, kLandSent, kLanded, kAbandonSent };

class ExchangeCrashTest : public ExchangeActorTest, public testing::WithParamInterface<Reached> {
 protected:
  // Slot 0 is on its way to layer 0 expert 0.
  void reach(Reached step) {
    script_.wanted = {{0, {0, 0}}};
    start();
    grant(1);
    if (step == Reached::kRetireSent) return;
    answer_retire(std::vector<bool>{true});
    if (step == Reached::kReserved) return;
    if (step == Reached::kAbandonSent) call_off();
    finish_copy();
    if (step == Reached::kLanded) answer_land();
  }
  void call_off() {
    script_.wanted.clear();
    ControlChange elsewhere;
    elsewhere.pin = {{1, 1}};
    ASSERT_TRUE(change(elsewhere));
  }
  // Every answer of the old gpu-worker that is still on its way arrives now.
  void answer_late() {
    for (auto& call : std::exchange(link_.retires, {})) call.reply(std::vector<bool>{true});
    for (auto& call : std::exchange(link_.lands, {})) call.reply(Status());
    for (auto& call : std::exchange(link_.abandons, {})) call.reply(Status());
    world_.deliver_all();
  }
};

TEST_P(ExchangeCrashTest, TheGpuWorkerDiesAndItsSuccessorBeginsAnew) {
  reach(GetParam());
  const bool landed = GetParam() == Reached::kLanded;
  EXPECT_EQ(metric("strata_expert_exchanges_total"), landed ? 1 : 0);
  end_link();
  EXPECT_EQ(metric("strata_expert_exchanges_dropped_total", "detached"), landed ? 0 : 1);
  EXPECT_EQ(actor_->status().in_flight, 0u);
  EXPECT_FALSE(actor_->status().attached);

  world_.advance(milliseconds(1000));
  if (GetParam() == Reached::kReserved) {
    EXPECT_EQ(link_.attachments, 1) << "the copy may still be writing into the slot";
    finish_copy();
    EXPECT_TRUE(link_.lands.empty()) << "nobody has reserved the slot any more";
    world_.advance(milliseconds(200));
  }
  EXPECT_EQ(link_.attachments, 2);
  script_.wanted.clear();
  grant(2);
  answer_late();
  EXPECT_TRUE(copier_.orders.empty());
  EXPECT_TRUE(link_.lands.empty());
  EXPECT_EQ(actor_->status().in_flight, 0u);
  EXPECT_EQ(actor_->status().slots_used, 0u) << "the successor's arena is empty";
  EXPECT_EQ(metric("strata_expert_exchanges_total"), landed ? 1 : 0);

  // And the successor's slots are filled, the same one included.
  script_.wanted = {{0, {0, 0}}};
  memory_.decode(0, 0, 1, 1);
  look();
  ASSERT_EQ(link_.retires.size(), 1u);
  EXPECT_EQ(link_.retires[0].epoch, 2u);
  answer_retire(std::vector<bool>{true});
  finish_copy();
  answer_land();
  EXPECT_EQ(actor_->status().slots_used, 1u);
}

// The cache manager dies: nothing of it is left but what the gpu-worker's table shows, which is what its
// successor sees when it attaches (the gpu-worker has emptied the reserved slot).
TEST_P(ExchangeCrashTest, TheCacheManagerDiesAndItsSuccessorReadsTheTable) {
  reach(GetParam());
  actor_.reset();
  answer_late();
  while (!copier_.orders.empty()) {
    copier_.orders.front().done({.bytes = 100, .checksum = {}});
    copier_.orders.pop_front();
  }
  world_.deliver_all();
  EXPECT_TRUE(link_.lands.empty()) << "the dead do not land";

  if (GetParam() == Reached::kLanded) memory_.table.set_slot(0, {shm::SlotState::kResident, 0, 0});
  script_.wanted = {{0, {0, 0}}};
  start();
  grant(2);
  if (GetParam() == Reached::kLanded) {
    EXPECT_EQ(actor_->status().slots_used, 1u);
    EXPECT_TRUE(link_.retires.empty()) << "it is there";
    return;
  }
  ASSERT_EQ(link_.retires.size(), 1u) << "the slot is empty, and filled again";
  EXPECT_EQ(link_.retires[0].epoch, 2u);
}

INSTANTIATE_TEST_SUITE_P(AtEachStep, ExchangeCrashTest,
                         testing::Values(Reached::kRetireSent, Reached::kReserved, Reached::kLandSent,
                                         Reached::kLanded, Reached::kAbandonSent));

// An end that comes before the grant, and a second one: each attempt ends by itself.
TEST_F(ExchangeActorTest, AGpuWorkerThatGoesBeforeItGrantsIsWaitedForAgain) {
  start();
  end_link();
  world_.advance(milliseconds(200));
  EXPECT_EQ(link_.attachments, 2);
  end_link();
  world_.advance(milliseconds(200));
  EXPECT_EQ(link_.attachments, 3);
  grant(3);
  EXPECT_TRUE(actor_->status().attached);
}

}  // namespace
}  // namespace strata::cache_manager
