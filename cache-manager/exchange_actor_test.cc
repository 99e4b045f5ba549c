// The exchanges on virtual time, one message at a time: the gpu-worker, the copies and the policy are played
// by the test, which stops at every step to look. Table, arena and usage board are real shared memory.

#include "cache-manager/exchange_actor.h"

#include <gtest/gtest.h>

#include <deque>
#include <filesystem>

#include "services/actor/actor_system.h"
#include "services/base/check.h"

namespace strata::cache_manager {
namespace {

using residency::ExpertKey;
using residency::Proposal;
using residency::SlotView;
using std::chrono::milliseconds;

constexpr uint32_t kLayers = 2, kExperts = 6, kSlots = 3;
constexpr uint64_t kSlotBytes = 64;

template <class T>
T must(Result<T> result) {
  CHECK(result.has_value(), "{}", result.error().message());
  return std::move(*result);
}

// A gpu-worker's shared memory, and the grants that map it.
struct FakeEngineMemory {
  FakeEngineMemory()
      : instance(shm::random_instance_id()),
        arena(must(shm::Segment::create(name("arena"), shm::SegmentKind::kArena, shm::kArenaLayoutVersion,
                                        shm::arena_bytes(kSlots, kSlotBytes)))),
        table(must(shm::ResidencyTable::create(name("table"), kSlots, kLayers, kSlotBytes))),
        usage(must(shm::UsageBoard::create(name("usage"), kLayers, kExperts))) {}

  std::string name(std::string_view what) const { return shm::segment_name("unittest", what, instance); }
  std::shared_ptr<Grant> grant(uint64_t epoch) const {
    auto grant = std::make_shared<Grant>();
    grant->epoch = epoch;
    grant->slot_count = kSlots;
    grant->slot_bytes = kSlotBytes;
    grant->arena = segment_arena(
        must(shm::Segment::attach(arena.name(), shm::SegmentKind::kArena, shm::kArenaLayoutVersion,
                                  arena.bytes(), arena.instance_id())));
    const shm::Segment& table_segment = table.segment();
    grant->table = must(shm::ResidencyTable::attach(table_segment.name(), table_segment.bytes(),
                                                    table_segment.instance_id()));
    const shm::Segment& usage_segment = usage.segment();
    grant->usage = must(
        shm::UsageBoard::attach(usage_segment.name(), usage_segment.bytes(), usage_segment.instance_id()));
    return grant;
  }
  void decode(uint32_t layer, uint32_t expert, uint32_t uses, uint32_t tokens) {
    usage.decode(layer, expert) += uses;
    usage.header().decode_tokens += tokens;
  }

  uint64_t instance;
  shm::Segment arena;
  shm::ResidencyTable table;
  shm::UsageBoard usage;
};

struct FakeLink final : EngineLink {
  struct RetireCall {
    uint64_t epoch;
    std::vector<SlotExchange> exchanges;
    std::function<void(Result<std::vector<bool>>)> reply;
  };
  struct LandCall {
    uint64_t epoch;
    std::vector<uint32_t> slots;
    std::function<void(Status)> reply;
  };

  void attach(AttachEvents its_events) override {
    ++attachments;
    events = std::move(its_events);
  }
  void detach() override { ++detachments; }
  void retire(uint64_t epoch, std::vector<SlotExchange> exchanges,
              std::function<void(Result<std::vector<bool>>)> reply) override {
    retires.push_back({epoch, std::move(exchanges), std::move(reply)});
  }
  void land(uint64_t epoch, std::vector<uint32_t> slots, std::function<void(Status)> reply) override {
    lands.push_back({epoch, std::move(slots), std::move(reply)});
  }

  int attachments = 0, detachments = 0;
  AttachEvents events;
  std::deque<RetireCall> retires;
  std::deque<LandCall> lands;
};

struct FakeCopier final : ExpertCopier {
  struct Job {
    SlotExchange exchange;
    std::function<void(uint64_t)> done;
  };
  void copy(std::shared_ptr<Grant>, SlotExchange exchange, std::function<void(uint64_t)> done) override {
    jobs.push_back({exchange, std::move(done)});
  }
  std::deque<Job> jobs;
};

// Proposes what the test wrote down, as far as the slots allow it.
struct ScriptedPolicy final : residency::Policy {
  struct Script {
    std::deque<Proposal> wanted;
    std::vector<SlotView> seen;  // the last view
    uint64_t tokens = 0;
    std::vector<uint32_t> uses;
  };
  explicit ScriptedPolicy(Script& its_script) : script(its_script) {}

  std::string_view name() const override { return "scripted"; }
  void observe(const residency::Usage& usage) override {
    script.uses.assign(usage.decode_uses.begin(), usage.decode_uses.end());
    script.tokens += usage.decode_tokens;
  }
  std::vector<Proposal> propose(std::span<const SlotView> slots, uint32_t budget) override {
    script.seen.assign(slots.begin(), slots.end());
    std::vector<Proposal> proposals;
    for (const Proposal& wanted : script.wanted) {
      const SlotView& slot = slots[wanted.slot];
      bool done = slot.state == SlotView::State::kResident && slot.key == wanted.incoming;
      if (slot.state != SlotView::State::kBusy && !done && proposals.size() < budget)
        proposals.push_back(wanted);
    }
    return proposals;
  }
  std::span<const uint32_t> quotas() const override { return quotas_; }
  Status control(residency::Control) override { return {}; }

  Script& script;
  std::vector<uint32_t> quotas_{2, 1};
};

class ExchangeActorTest : public testing::Test {
 protected:
  ExchangeOptions options() {
    return {.policy = "scripted",
            .make_policy = [this](std::string_view, const residency::PolicyOptions& policy)
                -> Result<std::unique_ptr<residency::Policy>> {
              policy_options_ = policy;
              return std::make_unique<ScriptedPolicy>(script_);
            },
            .in_flight_max = 2,
            .interval = milliseconds(50),
            .attach_retry = milliseconds(200),
            .learned_path = (folder_ / "learned.profile").string(),
            .experts_per_layer = {kExperts, kExperts - 1},
            .fill_profile = {}};
  }
  void start(ExchangeOptions with) {
    actor_ = std::make_shared<ExchangeActor>(world_.make_executor(), std::move(with),
                                             LearnedProfile("fingerprint", kLayers, kExperts), link_, copier_,
                                             probe_);
    actor::tell(actor_, ExchangeActor::Start{});
    world_.deliver_all();
  }
  void start() { start(options()); }
  void grant(uint64_t epoch = 1) {
    link_.events.granted(memory_.grant(epoch));
    world_.deliver_all();
  }
  void answer_retire(Result<std::vector<bool>> accepted) {
    ASSERT_FALSE(link_.retires.empty());
    auto call = std::move(link_.retires.front());
    link_.retires.pop_front();
    call.reply(std::move(accepted));
    world_.deliver_all();
  }
  void finish_copy() {
    ASSERT_FALSE(copier_.jobs.empty());
    auto job = std::move(copier_.jobs.front());
    copier_.jobs.pop_front();
    job.done(100);
    world_.deliver_all();
  }
  void answer_land(Status status = {}) {
    ASSERT_FALSE(link_.lands.empty());
    auto call = std::move(link_.lands.front());
    link_.lands.pop_front();
    call.reply(std::move(status));
    world_.deliver_all();
  }
  void end_link(Status why = Status(Code::kUnavailable, "gone")) {
    link_.events.ended(std::move(why));
    world_.deliver_all();
  }
  void look() { world_.advance(milliseconds(50)); }
  double metric(const std::string& name, const std::string& label_value = "") {
    for (const auto& family : metrics_.collect()) {
      if (family.name != name) continue;
      for (const auto& sample : family.metric) {
        for (const auto& label : sample.label) {
          if (label_value.empty() || label.value == label_value) return sample.counter.value;
        }
        if (label_value.empty()) return sample.counter.value;
      }
    }
    ADD_FAILURE() << "no metric " << name;
    return -1;
  }

  std::filesystem::path folder_ = [] {
    auto folder =
        std::filesystem::path(testing::TempDir()) / fmt::format("exchange-{:x}", shm::random_instance_id());
    std::filesystem::create_directories(folder);
    return folder;
  }();
  actor::VirtualWorld world_;
  FakeEngineMemory memory_;
  FakeLink link_;
  FakeCopier copier_;
  ScriptedPolicy::Script script_;
  residency::PolicyOptions policy_options_;
  obs::Metrics metrics_{{{"worker", "cache"}}};
  CacheProbe probe_{metrics_};
  std::shared_ptr<ExchangeActor> actor_;

 public:
  ~ExchangeActorTest() override { std::filesystem::remove_all(folder_); }
};

TEST_F(ExchangeActorTest, TakesAnExpertThroughTheFourSteps) {
  script_.wanted = {{0, {1, 4}}};
  start();
  EXPECT_TRUE(link_.retires.empty()) << "nothing before the grant";
  grant(7);
  ASSERT_EQ(link_.retires.size(), 1u);
  EXPECT_EQ(link_.retires[0].epoch, 7u);
  ASSERT_EQ(link_.retires[0].exchanges.size(), 1u);
  EXPECT_EQ(link_.retires[0].exchanges[0].incoming, (ExpertKey{1, 4}));
  EXPECT_TRUE(copier_.jobs.empty()) << "not before the slot is reserved";
  answer_retire(std::vector<bool>{true});
  ASSERT_EQ(copier_.jobs.size(), 1u);
  EXPECT_TRUE(link_.lands.empty()) << "not before the bytes are there";
  finish_copy();
  ASSERT_EQ(link_.lands.size(), 1u);
  EXPECT_EQ(link_.lands[0].epoch, 7u);
  EXPECT_EQ(link_.lands[0].slots, std::vector<uint32_t>{0});
  EXPECT_EQ(metric("strata_expert_exchanges_total"), 0) << "not before it is published";
  answer_land();
  EXPECT_EQ(metric("strata_expert_exchanges_total"), 1);
  EXPECT_EQ(metric("strata_expert_exchange_bytes_total"), 100);
  EXPECT_EQ(actor_->status().slots_used, 1u);
}

TEST_F(ExchangeActorTest, FillsFreeSlotsWithoutPauseAndWithoutTokens) {
  script_.wanted = {{0, {0, 0}}, {1, {0, 1}}, {2, {1, 0}}};
  start();
  grant();
  ASSERT_EQ(link_.retires[0].exchanges.size(), 2u) << "as many as may be in flight";
  answer_retire(std::vector<bool>{true, true});
  finish_copy();
  finish_copy();
  answer_land();
  ASSERT_EQ(link_.retires.size(), 1u) << "the next one without waiting for a look";
  EXPECT_EQ(link_.retires[0].exchanges[0].slot, 2u);
}

TEST_F(ExchangeActorTest, ExchangesOnlyWhenTokensWereMade) {
  memory_.table.set_slot(0, {shm::SlotState::kResident, 0, 5});
  script_.wanted = {{0, {1, 1}}};
  start();
  grant();
  for (int i = 0; i < 5; ++i) look();
  EXPECT_TRUE(link_.retires.empty()) << "nobody uses it, nothing moves";
  EXPECT_EQ(script_.seen[0].key, (ExpertKey{0, 5})) << "what is resident at the start";
  memory_.decode(1, 1, 3, 2);
  look();
  EXPECT_EQ(link_.retires.size(), 1u);
  EXPECT_EQ(script_.tokens, 2u);
  EXPECT_EQ(script_.uses[kExperts + 1], 3u);
}

TEST_F(ExchangeActorTest, CountsUsesFromWhereTheCountersStoodAtTheGrant) {
  memory_.decode(0, 2, 1000, 500);
  start();
  grant();
  look();
  EXPECT_EQ(script_.tokens, 0u);
  memory_.decode(0, 2, 4, 1);
  look();
  EXPECT_EQ(script_.tokens, 1u);
  EXPECT_EQ(script_.uses[2], 4u);
}

TEST_F(ExchangeActorTest, UsesOfAnUnfinishedWindowWaitForItsTokens) {
  start();
  grant();
  memory_.decode(0, 2, 4, 0);
  look();
  EXPECT_EQ(script_.tokens, 0u);
  memory_.decode(0, 2, 3, 1);
  look();
  EXPECT_EQ(script_.tokens, 1u);
  EXPECT_EQ(script_.uses[2], 7u);
}

TEST_F(ExchangeActorTest, NeverHasMoreInFlightThanAllowed) {
  script_.wanted = {{0, {0, 0}}, {1, {0, 1}}, {2, {0, 2}}};
  start();
  grant();
  answer_retire(std::vector<bool>{true, true});
  finish_copy();
  for (int i = 0; i < 3; ++i) {
    memory_.decode(0, 0, 1, 1);
    look();
  }
  EXPECT_TRUE(link_.retires.empty());
  EXPECT_EQ(actor_->status().in_flight, 2u);
}

TEST_F(ExchangeActorTest, LandsTogetherWhatWasCopiedMeanwhile) {
  ExchangeOptions with = options();
  with.in_flight_max = 3;
  script_.wanted = {{0, {0, 0}}, {1, {0, 1}}, {2, {0, 2}}};
  start(with);
  grant();
  answer_retire(std::vector<bool>{true, true, true});
  finish_copy();
  finish_copy();
  finish_copy();
  ASSERT_EQ(link_.lands.size(), 1u) << "one call at a time";
  EXPECT_EQ(link_.lands[0].slots, std::vector<uint32_t>{0});
  answer_land();
  ASSERT_EQ(link_.lands.size(), 1u);
  EXPECT_EQ(link_.lands[0].slots, (std::vector<uint32_t>{1, 2}));
  answer_land();
  EXPECT_EQ(metric("strata_expert_exchanges_total"), 3);
}

TEST_F(ExchangeActorTest, DropsARefusedExchangeAndReadsItsSlotAgain) {
  script_.wanted = {{0, {0, 0}}, {1, {0, 1}}};
  start();
  grant();
  memory_.table.set_slot(0, {shm::SlotState::kResident, 0, 3});
  answer_retire(std::vector<bool>{false, true});
  ASSERT_EQ(copier_.jobs.size(), 1u);
  EXPECT_EQ(copier_.jobs[0].exchange.slot, 1u);
  EXPECT_EQ(metric("strata_expert_exchanges_dropped_total", "refused"), 1);
  script_.wanted.clear();
  look();
  EXPECT_EQ(script_.seen[0].key, (ExpertKey{0, 3}));
}

TEST_F(ExchangeActorTest, TriesAgainWhenTheGpuWorkersInboxIsFull) {
  script_.wanted = {{0, {0, 0}}};
  start();
  grant();
  answer_retire(fail(Code::kResourceExhausted, "full"));
  EXPECT_EQ(metric("strata_expert_exchanges_dropped_total", "busy"), 1);
  look();
  ASSERT_EQ(link_.retires.size(), 1u);
  answer_retire(std::vector<bool>{true});
  finish_copy();
  answer_land(Status(Code::kResourceExhausted, "full"));
  EXPECT_TRUE(link_.lands.empty());
  world_.advance(milliseconds(10));
  ASSERT_EQ(link_.lands.size(), 1u) << "the copy is not thrown away";
  answer_land();
  EXPECT_EQ(metric("strata_expert_exchanges_total"), 1);
  EXPECT_EQ(link_.detachments, 0);
}

TEST_F(ExchangeActorTest, GivesUpTheAttachmentWhenTheTwoSidesMayDisagree) {
  script_.wanted = {{0, {0, 0}}};
  start();
  grant();
  answer_retire(fail(Code::kDeadlineExceeded, "no answer: it may or may not have been applied"));
  EXPECT_EQ(link_.detachments, 1);
  end_link();
  EXPECT_EQ(metric("strata_expert_exchanges_dropped_total", "detached"), 1);
  EXPECT_FALSE(actor_->status().attached);
}

TEST_F(ExchangeActorTest, AttachesAgainAfterThePauseAndReadsTheNewTable) {
  start();
  EXPECT_EQ(link_.attachments, 1);
  grant();
  end_link();
  EXPECT_EQ(link_.attachments, 1);
  world_.advance(milliseconds(200));
  EXPECT_EQ(link_.attachments, 2);
  memory_.table.set_slot(2, {shm::SlotState::kResident, 1, 3});
  grant(2);
  EXPECT_TRUE(actor_->status().attached);
  EXPECT_EQ(actor_->status().slots_used, 1u);
}

// Whatever the step at which the gpu-worker goes away: nothing of the old attachment reaches the new one.
TEST_F(ExchangeActorTest, AnEndWhileRetiringIsForgotten) {
  script_.wanted = {{0, {0, 0}}};
  start();
  grant(1);
  auto late = std::move(link_.retires.front());
  link_.retires.clear();
  end_link();
  world_.advance(milliseconds(200));
  script_.wanted.clear();
  grant(2);
  late.reply(std::vector<bool>{true});
  world_.deliver_all();
  EXPECT_TRUE(copier_.jobs.empty());
  EXPECT_EQ(actor_->status().in_flight, 0u);
}

TEST_F(ExchangeActorTest, AnEndWhileCopyingDelaysTheNextAttachment) {
  script_.wanted = {{0, {0, 0}}};
  start();
  grant(1);
  answer_retire(std::vector<bool>{true});
  end_link();
  world_.advance(milliseconds(1000));
  EXPECT_EQ(link_.attachments, 1) << "the copy may still be writing into the slot";
  finish_copy();
  EXPECT_TRUE(link_.lands.empty()) << "nobody has reserved it any more";
  world_.advance(milliseconds(200));
  EXPECT_EQ(link_.attachments, 2);
}

TEST_F(ExchangeActorTest, AnEndWhileLandingIsForgotten) {
  script_.wanted = {{0, {0, 0}}};
  start();
  grant(1);
  answer_retire(std::vector<bool>{true});
  finish_copy();
  auto late = std::move(link_.lands.front());
  link_.lands.clear();
  end_link();
  world_.advance(milliseconds(200));
  script_.wanted.clear();
  grant(2);
  late.reply(Status());
  world_.deliver_all();
  EXPECT_EQ(metric("strata_expert_exchanges_total"), 0);
  EXPECT_EQ(actor_->status().slots_used, 0u);
}

TEST_F(ExchangeActorTest, WithNothingAllowedInFlightResidencyStaysAsItIs) {
  ExchangeOptions with = options();
  with.in_flight_max = 0;
  script_.wanted = {{0, {0, 0}}};
  start(with);
  grant();
  memory_.decode(0, 0, 9, 9);
  look();
  EXPECT_TRUE(link_.retires.empty());
  EXPECT_EQ(script_.tokens, 9u) << "it learns all the same";
}

TEST_F(ExchangeActorTest, NeverAsksForAnExpertThatItsLayerDoesNotHave) {
  script_.wanted = {{0, {1, kExperts - 1}}, {1, {0, kExperts - 1}}};
  start();
  grant();
  ASSERT_EQ(link_.retires.size(), 1u);
  ASSERT_EQ(link_.retires[0].exchanges.size(), 1u);
  EXPECT_EQ(link_.retires[0].exchanges[0].slot, 1u);
}

TEST_F(ExchangeActorTest, FillsByTheLearnedProfileUnlessToldOtherwise) {
  start();
  grant();
  EXPECT_TRUE(policy_options_.profile.empty()) << "nothing is known";
  memory_.decode(0, 1, 8, 4);
  look();
  end_link();
  world_.advance(milliseconds(200));
  grant(2);
  ASSERT_EQ(policy_options_.profile.size(), kLayers * kExperts);
  EXPECT_EQ(policy_options_.profile[1], 1.0f);
  EXPECT_EQ(policy_options_.slots, kSlots);
}

TEST_F(ExchangeActorTest, SavesWhatItLearnedWhenThereIsSomethingNew) {
  start();
  grant();
  std::filesystem::path path = folder_ / "learned.profile";
  world_.advance(milliseconds(30000));
  EXPECT_FALSE(std::filesystem::exists(path)) << "nothing was learned";
  memory_.decode(1, 2, 6, 3);
  world_.advance(milliseconds(30000));
  auto saved = residency::read_profile(path.string(), "fingerprint");
  ASSERT_TRUE(saved) << saved.error().message();
  EXPECT_EQ(saved->counts[kExperts + 2], 6u);
  EXPECT_EQ(saved->tokens, 3u);
}

TEST_F(ExchangeActorTest, AnswersQuestionsAboutResidencyAndUsage) {
  memory_.table.set_slot(0, {shm::SlotState::kResident, 1, 4});
  memory_.table.set_slot(1, {shm::SlotState::kResident, 1, 2});
  start();
  Result<UsageSummary> usage;
  auto keep_usage = [&](Result<UsageSummary> reply) { usage = std::move(reply); };
  actor::tell(actor_, ExchangeActor::DescribeUsage{keep_usage});
  world_.deliver_all();
  ASSERT_FALSE(usage);
  EXPECT_EQ(usage.error().code(), Code::kUnavailable);
  grant();
  memory_.decode(0, 3, 5, 2);
  memory_.usage.prefill(1, 1) += 7;
  actor::tell(actor_, ExchangeActor::DescribeUsage{keep_usage});
  ResidencySummary residency;
  actor::tell(actor_, ExchangeActor::DescribeResidency{
                          [&](ResidencySummary reply) { residency = std::move(reply); }});
  world_.deliver_all();
  ASSERT_TRUE(usage);
  EXPECT_EQ(usage->decode_counts[3], 5u);
  EXPECT_EQ(usage->prefill_counts[kExperts + 1], 7u);
  EXPECT_EQ(residency.experts[1], (std::vector<uint32_t>{2, 4}));
  EXPECT_EQ(residency.quotas, (std::vector<uint32_t>{2, 1}));
  EXPECT_EQ(residency.slots_used, 2u);
}

}  // namespace
}  // namespace strata::cache_manager
