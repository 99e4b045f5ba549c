// Every rule of the four-step exchange, and what is left when a cache manager goes away at each step.

#include "gpu-worker/resident_table.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "gpu-worker/fake_device.h"
#include "services/base/check.h"

namespace strata::gpu_worker {
namespace {

using shm::SlotState;
using Accepted = std::vector<bool>;

class ResidentTableTest : public testing::Test {
 protected:
  // Makes an expert resident in a slot.
  void fill(uint32_t slot, uint32_t layer, uint32_t expert) {
    ExpertExchange exchange{slot, layer, expert};
    auto accepted = table_.retire(epoch_, {&exchange, 1});
    ASSERT_TRUE(accepted) << accepted.error().message();
    ASSERT_EQ(*accepted, Accepted{true});
    ASSERT_TRUE(table_.land(epoch_, {&slot, 1}));
  }
  Accepted retire(std::vector<ExpertExchange> exchanges) {
    auto accepted = table_.retire(epoch_, exchanges);
    EXPECT_TRUE(accepted) << (accepted ? "" : accepted.error().message());
    return accepted ? *accepted : Accepted{};
  }
  Result<uint64_t> land(std::vector<uint32_t> slots) { return table_.land(epoch_, slots); }
  Status abandon(std::vector<uint32_t> slots) { return table_.abandon(epoch_, slots); }

  FakeDevice device_{1, /*slots=*/3, {8, 6}};
  ResidentTable& table_ = device_.residents();
  uint64_t epoch_ = table_.begin_attachment();
};

TEST_F(ResidentTableTest, AnExpertIsAHitOnlyAfterItHasLanded) {
  EXPECT_EQ(table_.record(1, 5), nullptr);
  EXPECT_EQ(retire({{2, 1, 5}}), Accepted{true});
  EXPECT_EQ(table_.record(1, 5), nullptr) << "its bytes are still being copied";
  ASSERT_TRUE(land({2}));
  EXPECT_EQ(table_.record(1, 5), table_.record(1, 5));
  ASSERT_NE(table_.record(1, 5), nullptr);
  EXPECT_EQ(table_.slots_used(), 1u);
}

TEST_F(ResidentTableTest, SlotsDoNotOverlap) {
  fill(0, 0, 0);
  fill(1, 0, 1);
  EXPECT_EQ(table_.record(0, 1) - table_.record(0, 0), 64);
}

TEST_F(ResidentTableTest, AVictimIsAMissFromTheRetirementOn) {
  fill(0, 0, 3);
  EXPECT_EQ(retire({{0, 1, 4}}), Accepted{true});
  EXPECT_EQ(table_.record(0, 3), nullptr);
  EXPECT_EQ(table_.record(1, 4), nullptr);
  EXPECT_EQ(table_.slots_used(), 0u);
  ASSERT_TRUE(land({0}));
  EXPECT_EQ(table_.record(0, 3), nullptr);
  EXPECT_NE(table_.record(1, 4), nullptr);
}

TEST_F(ResidentTableTest, RefusesASlotThatIsInAnExchange) {
  EXPECT_EQ(retire({{0, 0, 1}}), Accepted{true});
  EXPECT_EQ(retire({{0, 0, 2}}), Accepted{false});
  EXPECT_EQ(retire({{1, 0, 3}, {1, 0, 4}}), (Accepted{true, false})) << "within one request, too";
}

TEST_F(ResidentTableTest, RefusesAnExpertThatIsResidentOrOnItsWay) {
  fill(0, 0, 1);
  EXPECT_EQ(retire({{1, 0, 1}}), Accepted{false});
  EXPECT_EQ(retire({{0, 0, 1}}), Accepted{false}) << "into its own slot";
  EXPECT_EQ(retire({{1, 0, 2}, {2, 0, 2}}), (Accepted{true, false}));
  EXPECT_NE(table_.record(0, 1), nullptr) << "a refusal changes nothing";
}

TEST_F(ResidentTableTest, TheSameExpertNumberInAnotherLayerIsAnotherExpert) {
  fill(0, 0, 1);
  EXPECT_EQ(retire({{1, 1, 1}}), Accepted{true});
}

TEST_F(ResidentTableTest, AVictimMayComeBackAsSoonAsItIsOut) {
  fill(0, 0, 1);
  EXPECT_EQ(retire({{0, 0, 2}, {1, 0, 1}}), (Accepted{true, true}));
}

TEST_F(ResidentTableTest, SaysWhatDoesNotExistAndChangesNothing) {
  auto slot = table_.retire(epoch_, std::vector<ExpertExchange>{{0, 0, 1}, {3, 0, 2}});
  ASSERT_FALSE(slot);
  EXPECT_EQ(slot.error().code(), Code::kOutOfRange);
  EXPECT_EQ(table_.retire(epoch_, std::vector<ExpertExchange>{{0, 1, 6}}).error().code(), Code::kOutOfRange)
      << "layer 1 has 6";
  EXPECT_EQ(table_.retire(epoch_, std::vector<ExpertExchange>{{0, 2, 0}}).error().code(), Code::kOutOfRange);
  EXPECT_EQ(land({7}).error().code(), Code::kOutOfRange);
  EXPECT_EQ(retire({{0, 0, 1}}), Accepted{true}) << "the first entry of the bad request was not applied";
}

TEST_F(ResidentTableTest, LandsOnlyWhatIsReserved) {
  fill(0, 0, 1);
  EXPECT_EQ(land({0}).error().code(), Code::kFailedPrecondition);
  EXPECT_EQ(land({1}).error().code(), Code::kFailedPrecondition);
  retire({{1, 0, 2}});
  EXPECT_EQ(land({1, 2}).error().code(), Code::kFailedPrecondition);
  EXPECT_EQ(table_.record(0, 2), nullptr) << "all or nothing";
  EXPECT_TRUE(land({1, 1}));
}

TEST_F(ResidentTableTest, AnAbandonedSlotIsEmptyAndItsExpertFree) {
  fill(0, 0, 1);
  retire({{0, 0, 2}});
  ASSERT_TRUE(abandon({0, 0}).ok());
  EXPECT_EQ(table_.record(0, 1), nullptr) << "its bytes may be half overwritten";
  EXPECT_EQ(table_.record(0, 2), nullptr);
  EXPECT_EQ(retire({{0, 0, 1}, {1, 0, 2}}), (Accepted{true, true}));
  EXPECT_EQ(abandon({2}).code(), Code::kFailedPrecondition);
}

TEST_F(ResidentTableTest, ACacheManagerThatDiesAfterRetiringLeavesEmptySlots) {
  fill(0, 0, 1);
  fill(1, 0, 2);
  retire({{0, 0, 3}});
  table_.end_attachment(epoch_);
  EXPECT_EQ(table_.record(0, 1), nullptr);
  EXPECT_EQ(table_.record(0, 3), nullptr);
  EXPECT_NE(table_.record(0, 2), nullptr) << "what was resident stays";
  EXPECT_EQ(table_.slots_used(), 1u);
}

TEST_F(ResidentTableTest, ANewAttachmentDropsWhatTheOldOneReserved) {
  retire({{0, 0, 3}});
  uint64_t next = table_.begin_attachment();
  EXPECT_NE(next, epoch_);
  EXPECT_EQ(land({0}).error().code(), Code::kAborted) << "the old one's late landing";
  ExpertExchange again{0, 0, 3};
  EXPECT_EQ(*table_.retire(next, {&again, 1}), Accepted{true});
  EXPECT_EQ(land({0}).error().code(), Code::kAborted) << "the same slot, reserved by somebody else";
  EXPECT_EQ(abandon({0}).code(), Code::kAborted);
  EXPECT_EQ(table_.retire(epoch_, {&again, 1}).error().code(), Code::kAborted);
  table_.end_attachment(epoch_);
  EXPECT_TRUE(table_.land(next, std::vector<uint32_t>{0})) << "the old one's end is not the new one's";
}

TEST_F(ResidentTableTest, WithoutAnAttachmentNothingChanges) {
  table_.end_attachment(epoch_);
  EXPECT_EQ(table_.retire(epoch_, std::vector<ExpertExchange>{{0, 0, 1}}).error().code(), Code::kAborted);
  EXPECT_EQ(table_.retire(0, std::vector<ExpertExchange>{{0, 0, 1}}).error().code(), Code::kAborted);
}

TEST_F(ResidentTableTest, ShowsEveryChangeInTheSharedTable) {
  auto shared = shm::ResidencyTable::attach(table_.segment().name(), table_.segment().bytes(),
                                            table_.segment().instance_id());
  ASSERT_TRUE(shared) << shared.error().message();
  uint64_t before = table_.residency_epoch();
  retire({{1, 1, 4}});
  EXPECT_EQ(shared->slot(1).state, SlotState::kReserved);
  EXPECT_EQ(shared->slot(1).layer, 1);
  EXPECT_EQ(shared->slot(1).expert, 4);
  EXPECT_EQ(table_.residency_epoch(), before + 1);
  EXPECT_EQ(*land({1}), before + 2);
  EXPECT_EQ(shared->slot(1).state, SlotState::kResident);
  EXPECT_EQ(retire({{1, 1, 4}}), Accepted{false});
  EXPECT_EQ(table_.residency_epoch(), before + 2) << "nothing changed";
}

TEST_F(ResidentTableTest, AnArenaWithoutSlotsHasOnlyMisses) {
  FakeDevice bare(1, 0);
  uint64_t epoch = bare.residents().begin_attachment();
  EXPECT_EQ(bare.residents().record(0, 0), nullptr);
  EXPECT_EQ(bare.residents().retire(epoch, std::vector<ExpertExchange>{{0, 0, 0}}).error().code(),
            Code::kOutOfRange);
}

// Random requests against a model of the rules: no expert in two slots, no slot with two experts, no hit that
// has not landed.
TEST_F(ResidentTableTest, KeepsItsInvariantsUnderRandomRequests) {
  constexpr uint32_t kSeed = 20240607;
  std::mt19937 random(kSeed);
  auto below = [&](uint32_t bound) { return static_cast<uint32_t>(random() % bound); };
  std::map<uint32_t, std::pair<uint32_t, uint32_t>> resident, reserved;  // by slot
  for (int step = 0; step < 5000; ++step) {
    uint32_t slot = below(3);
    switch (below(8)) {
      case 0:
        epoch_ = table_.begin_attachment();
        reserved.clear();
        break;
      case 1:
        ASSERT_EQ(abandon({slot}).ok(), reserved.erase(slot) == 1) << "seed " << kSeed << " step " << step;
        break;
      case 2:
      case 3: {
        bool landed = land({slot}).has_value();
        ASSERT_EQ(landed, reserved.contains(slot)) << "seed " << kSeed << " step " << step;
        if (landed) resident[slot] = reserved.extract(slot).mapped();
        break;
      }
      default: {
        std::pair<uint32_t, uint32_t> incoming{below(2), below(6)};
        auto holds = [&](const auto& slots) {
          return std::any_of(slots.begin(), slots.end(),
                             [&](const auto& entry) { return entry.second == incoming; });
        };
        bool possible = !reserved.contains(slot) && !holds(resident) && !holds(reserved);
        ASSERT_EQ(retire({{slot, incoming.first, incoming.second}}), Accepted{possible})
            << "seed " << kSeed << " step " << step;
        if (possible) {
          resident.erase(slot);
          reserved[slot] = incoming;
        }
      }
    }
    std::set<const std::byte*> seen;
    for (uint32_t layer = 0; layer < 2; ++layer) {
      for (uint32_t expert = 0; expert < 6; ++expert) {
        if (const std::byte* record = table_.record(layer, expert)) {
          EXPECT_TRUE(seen.insert(record).second) << "two experts in one slot";
        }
      }
    }
    ASSERT_EQ(seen.size(), resident.size()) << "seed " << kSeed << " step " << step;
    for (const auto& [held, key] : resident) ASSERT_NE(table_.record(key.first, key.second), nullptr);
  }
}

TEST_F(ResidentTableTest, SaysWhichExpertsCameAndWent) {
  using Changes = std::vector<std::pair<uint32_t, uint32_t>>;
  const auto changes_since = [&](uint64_t seen) {
    Changes changes;
    EXPECT_TRUE(table_.visit_changes(
        seen, [&](uint32_t layer, uint32_t expert) { changes.emplace_back(layer, expert); }));
    return changes;
  };
  EXPECT_EQ(table_.change_count(), 0u);
  fill(0, 0, 3);
  EXPECT_EQ(changes_since(0), (Changes{{0, 3}})) << "it came with the landing";
  const uint64_t seen = table_.change_count();
  retire({{0, 1, 4}});
  EXPECT_EQ(changes_since(seen), (Changes{{0, 3}})) << "the victim went";
  ASSERT_TRUE(abandon({0}).ok());
  EXPECT_EQ(changes_since(seen).size(), 1u) << "who was never there cannot go";
  while (table_.change_count() - seen <= ResidentTable::kChangesKept) {
    fill(1, 1, 2);
    retire({{1, 0, 0}});
    ASSERT_TRUE(abandon({1}).ok());
  }
  EXPECT_FALSE(table_.visit_changes(seen, [](uint32_t, uint32_t) { FAIL(); })) << "too long ago";
  EXPECT_EQ(changes_since(table_.change_count()), Changes{});
}

// A table that checks records, by a checksum that a test can compute in its head: the first byte.
class VerifiedTableTest : public testing::Test {
 protected:
  static ResidentTableOptions options(std::vector<std::byte>& slots) {
    auto table = shm::ResidencyTable::create(
        shm::segment_name("unittest", "verified", shm::random_instance_id()), 2, 1, 64);
    CHECK(table.has_value(), "{}", table.error().message());
    return {.table = std::move(*table),
            .slots = slots.data(),
            .slot_bytes = 64,
            .experts_per_layer = {4},
            .checksum = [](uint32_t, uint32_t, const std::byte* record) {
              return static_cast<uint64_t>(*record);
            }};
  }
  Result<uint64_t> exchange(uint32_t slot, uint32_t expert, std::vector<uint64_t> checksums) {
    const ExpertExchange reserve{slot, 0, expert};
    auto accepted = table_.retire(epoch_, {&reserve, 1});
    CHECK(accepted.has_value() && accepted->front(), "not reserved");
    slots_[slot * std::size_t{64}] = std::byte{42};
    return table_.land(epoch_, {&slot, 1}, checksums);
  }
  shm::SlotState state(uint32_t slot) {
    auto seen = shm::ResidencyTable::attach(table_.segment().name(), table_.segment().bytes(),
                                            table_.segment().instance_id());
    return seen->slot(slot).state;
  }

  std::vector<std::byte> slots_ = std::vector<std::byte>(128);
  ResidentTable table_{options(slots_)};
  uint64_t epoch_ = table_.begin_attachment();
};

TEST_F(VerifiedTableTest, PublishesWhatTheSlotReallyHolds) {
  ASSERT_TRUE(exchange(1, 3, {42}));
  EXPECT_EQ(table_.record(0, 3), &slots_[64]);
  EXPECT_EQ(table_.record(0, 3), &slots_[64]) << "and again";
}

TEST_F(VerifiedTableTest, RefusesToPublishASlotThatHoldsSomethingElse) {
  const auto landed = exchange(1, 3, {41});
  ASSERT_FALSE(landed);
  EXPECT_EQ(landed.error().code(), Code::kDataLoss);
  EXPECT_NE(landed.error().message().find("slot 1 does not hold layer 0 expert 3"), std::string::npos);
  EXPECT_EQ(state(1), SlotState::kReserved) << "nothing was changed";
  EXPECT_EQ(table_.record(0, 3), nullptr);
}

TEST_F(VerifiedTableTest, TakesLandingsWithoutChecksumsAndWatchesTheRecordsAllTheSame) {
  GTEST_FLAG_SET(death_test_style, "fast");
  ASSERT_TRUE(exchange(0, 1, {}));
  ASSERT_NE(table_.record(0, 1), nullptr);
  slots_[0] = std::byte{43};  // a cache manager that writes where it may not
  EXPECT_DEATH(static_cast<void>(table_.record(0, 1)),
               "slot 0 was written after layer 0 expert 1 had landed");
}

TEST_F(VerifiedTableTest, AWrongNumberOfChecksumsIsRefused) {
  const auto landed = exchange(1, 3, {42, 42});
  ASSERT_FALSE(landed);
  EXPECT_EQ(landed.error().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace strata::gpu_worker
