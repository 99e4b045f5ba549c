#pragma once
// For tests: the exchange actor on virtual time, one message at a time. The gpu-worker, the copies, the
// windows and the policy are played by the test, which stops at every step to look. Table, arena and usage
// board are real shared memory.

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <optional>

#include "cache-manager/exchange_actor.h"
#include "services/actor/actor_system.h"
#include "services/base/check.h"

namespace strata::cache_manager {

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
  // A window of so many generated tokens, or prompt tokens, in which one expert was used.
  void decode(uint32_t layer, uint32_t expert, uint32_t uses, uint32_t tokens) {
    usage.decode(layer, expert) += uses;
    usage.window_finished({.prompt = 0, .generated = tokens});
  }
  void prefill(uint32_t layer, uint32_t expert, uint32_t uses, uint32_t tokens) {
    usage.prefill(layer, expert) += uses;
    usage.window_finished({.prompt = tokens, .generated = 0});
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
    std::vector<std::optional<uint64_t>> checksums;
    std::function<void(Status)> reply;
  };
  struct AbandonCall {
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
  void land(uint64_t epoch, std::vector<CopiedSlot> copied, std::function<void(Status)> reply) override {
    LandCall call{epoch, {}, {}, std::move(reply)};
    for (const CopiedSlot& each : copied) {
      call.slots.push_back(each.slot);
      call.checksums.push_back(each.checksum);
    }
    lands.push_back(std::move(call));
  }
  void abandon(uint64_t epoch, std::vector<uint32_t> slots, std::function<void(Status)> reply) override {
    abandons.push_back({epoch, std::move(slots), std::move(reply)});
  }

  int attachments = 0, detachments = 0;
  AttachEvents events;
  std::deque<RetireCall> retires;
  std::deque<LandCall> lands;
  std::deque<AbandonCall> abandons;
};

struct FakeCopier final : ExpertCopier {
  void copy(CopyOrder order) override { orders.push_back(std::move(order)); }
  std::deque<CopyOrder> orders;
};

struct FakeWatch final : WindowWatch {
  void begin(std::shared_ptr<Grant>, std::function<void()> its_finished) override {
    finished = std::move(its_finished);
  }
  void end() override { finished = nullptr; }
  std::function<void()> finished;
};

// Proposes what the test wrote down, as far as the slots allow it.
struct ScriptedPolicy final : residency::Policy {
  struct Script {
    std::deque<Proposal> wanted;
    std::vector<SlotView> seen;  // the last view
    uint64_t tokens = 0, prefill_tokens = 0;
    std::vector<uint32_t> uses, prefill_uses;
    std::function<void()> on_observe;
    residency::Control demands;
    Status control_answer;                 // of the next control()
    std::vector<residency::Topic> topics;  // learned
  };
  explicit ScriptedPolicy(Script& its_script) : script(its_script) {}

  std::string_view name() const override { return "scripted"; }
  void observe(const residency::Usage& usage) override {
    if (script.on_observe) script.on_observe();
    script.uses.assign(usage.decode_uses.begin(), usage.decode_uses.end());
    script.prefill_uses.assign(usage.prefill_uses.begin(), usage.prefill_uses.end());
    script.tokens += usage.decode_tokens;
    script.prefill_tokens += usage.prefill_tokens;
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
  std::span<const residency::Topic> topics() const override { return script.topics; }
  Status control(residency::Control demands) override {
    if (script.control_answer.ok()) script.demands = std::move(demands);
    return std::exchange(script.control_answer, Status());
  }

  Script& script;
  std::vector<uint32_t> quotas_{2, 1};
};

class ExchangeActorTest : public testing::Test {
 protected:
  static ExchangeRates rates(uint32_t per_window, uint32_t in_flight) {
    return {.exchanges_per_window = {config::Amount::Kind::kNumber, static_cast<double>(per_window)},
            .copy_budget = {},
            .exchanges_in_flight = in_flight};
  }
  ExchangeOptions options() {
    return {.policy = "scripted",
            .make_policy = [this](std::string_view name, const residency::PolicyOptions& policy)
                -> Result<std::unique_ptr<residency::Policy>> {
              if (name == "unknown") return fail(Code::kInvalidArgument, "no residency policy 'unknown'");
              policies_made_.emplace_back(name);
              policy_options_ = policy;
              return std::make_unique<ScriptedPolicy>(script_);
            },
            .rates = rates(8, 2),
            .attach_retry = milliseconds(200),
            .learned_path = (folder_ / "learned.profile").string(),
            .experts_per_layer = {kExperts, kExperts - 1},
            .record_bytes = {100, 60},
            .static_profile = {}};
  }
  void start(ExchangeOptions with) {
    actor_ = std::make_shared<ExchangeActor>(
        world_.make_executor(), std::move(with), LearnedProfile("fingerprint", kLayers, kExperts),
        ExchangeActor::Parts{.link = &link_, .copier = &copier_, .watch = &watch_, .probe = &probe_});
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
  // As the copy thread does it: one that was called off in time is not made.
  void finish_copy(std::optional<uint64_t> checksum = {}) {
    ASSERT_FALSE(copier_.orders.empty());
    auto order = std::move(copier_.orders.front());
    copier_.orders.pop_front();
    order.done(order.called_off->load() ? CopyResult() : CopyResult{.bytes = 100, .checksum = checksum});
    world_.deliver_all();
  }
  void answer_land(Status status = {}) {
    ASSERT_FALSE(link_.lands.empty());
    auto call = std::move(link_.lands.front());
    link_.lands.pop_front();
    call.reply(std::move(status));
    world_.deliver_all();
  }
  void answer_abandon(Status status = {}) {
    ASSERT_FALSE(link_.abandons.empty());
    auto call = std::move(link_.abandons.front());
    link_.abandons.pop_front();
    call.reply(std::move(status));
    world_.deliver_all();
  }
  void end_link(Status why = Status(Code::kUnavailable, "gone")) {
    link_.events.ended(std::move(why));
    world_.deliver_all();
  }
  // What the watch does when windows have finished.
  void look() {
    if (watch_.finished) watch_.finished();
    world_.deliver_all();
  }
  Result<ResidencySummary> change(ControlChange change) {
    Result<ResidencySummary> answer = fail(Code::kUnknown, "no answer");
    actor::tell(actor_, ExchangeActor::Change{std::move(change), [&](Result<ResidencySummary> reply) {
                                                answer = std::move(reply);
                                              }});
    world_.deliver_all();
    return answer;
  }
  ResidencySummary residency() {
    ResidencySummary summary;
    actor::tell(actor_, ExchangeActor::DescribeResidency{
                            [&](ResidencySummary reply) { summary = std::move(reply); }});
    world_.deliver_all();
    return summary;
  }
  // The counter's value; of a metric with several series the one that has this label value.
  double metric(const std::string& name, const std::string& label_value = "") {
    return sample(name, label_value).counter.value;
  }
  double gauge(const std::string& name, const std::string& label_value = "") {
    return sample(name, label_value).gauge.value;
  }
  prometheus::ClientMetric sample(const std::string& name, const std::string& label_value) {
    for (const auto& family : metrics_.collect()) {
      if (family.name != name) continue;
      for (const auto& each : family.metric) {
        const bool meant = label_value.empty() || std::ranges::any_of(each.label, [&](const auto& label) {
                             return label.value == label_value;
                           });
        if (meant) return each;
      }
    }
    ADD_FAILURE() << "no metric " << name << " " << label_value;
    return {};
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
  FakeWatch watch_;
  ScriptedPolicy::Script script_;
  residency::PolicyOptions policy_options_;
  std::vector<std::string> policies_made_;
  obs::Metrics metrics_{{{"worker", "cache"}}};
  CacheProbe probe_{metrics_, kLayers};
  std::shared_ptr<ExchangeActor> actor_;

 public:
  ~ExchangeActorTest() override { std::filesystem::remove_all(folder_); }
};

}  // namespace strata::cache_manager
