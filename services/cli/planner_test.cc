// Plans of machines that are not there, for the real model's shape and for the demo's.
#include "services/cli/planner.h"

#include <gmock/gmock.h>

#include <boost/json.hpp>

#include "services/synthetic/model_outline.h"
#include "services/synthetic/model_spec.h"

namespace strata::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr uint64_t kGiB = uint64_t{1} << 30;

model::ModelWeights outline(std::string_view spec) {
  const auto plan = synthetic::plan_model(synthetic::parse_model_spec(spec).value()).value();
  return model::load_model(synthetic::open_outline(plan).value()).value();
}
const model::ModelWeights& real_shape() {
  static const model::ModelWeights weights = outline("qwen3.8-flash-next:types=IQ4_XS/IQ4_NL:ngram=full");
  return weights;
}

class PlannerTest : public testing::Test {
 protected:
  PlannerTest() {
    settings_.engine_context_tokens.set(32768);
    settings_.engine_sequences.set(1);
    settings_.cpu_experts_workers.set(1);
    settings_.device_threads.set(4);
    subject_.model = "real";
    subject_.weights = &real_shape();
    subject_.settings = &settings_;
    subject_.context_tokens = 32768;
    subject_.ram_bytes = 96 * kGiB;
  }
  PlannedMachine card(uint64_t gib) {
    auto machine = plan_card(subject_, {.name = fmt::format("{}GiB", gib), .bytes = gib * kGiB});
    EXPECT_TRUE(machine) << machine.error().message();
    return std::move(*machine);
  }
  // Expert 0 of every layer carries half of its use, the others share the rest.
  residency::Profile skewed() const {
    residency::Profile profile{
        .model_fingerprint = {}, .layers = 48, .experts = 512, .tokens = 1, .counts = {}};
    for (uint32_t i = 0; i < 48 * 512; ++i) profile.counts.push_back(i % 512 == 0 ? 511 : 1);
    return profile;
  }

  config::Settings settings_;
  PlanSubject subject_;
};

TEST_F(PlannerTest, LargerCardsHoldMoreOfTheRealModel) {
  const auto profile = skewed();
  subject_.profile = &profile;
  uint32_t slots = 0;
  double hits = 0;
  for (const uint64_t gib : {12, 16, 24, 80}) {
    SCOPED_TRACE(gib);
    const PlannedMachine machine = card(gib);
    EXPECT_TRUE(machine.fits.ok()) << machine.fits.message();
    EXPECT_GT(machine.plan.slots, slots);
    ASSERT_TRUE(machine.hit_rate);
    EXPECT_GT(*machine.hit_rate, hits);
    slots = machine.plan.slots;
    hits = *machine.hit_rate;
  }
  EXPECT_GT(hits, 0.9);
}

TEST_F(PlannerTest, SaysWhatDoesNotFitASmallCard) {
  const PlannedMachine machine = card(4);
  EXPECT_EQ(machine.fits.code(), Code::kResourceExhausted);
  const std::string text = plan_text(subject_, machine);
  EXPECT_THAT(text, HasSubstr("Does not fit: not enough device memory"));
  EXPECT_THAT(text, HasSubstr("it does not fit"));
  EXPECT_THAT(text, HasSubstr("weights"));
}

TEST_F(PlannerTest, TheRestBelongsInThePageCache) {
  const PlannedMachine small = card(12), large = card(24);
  EXPECT_GT(small.missing_experts_bytes, large.missing_experts_bytes);
  EXPECT_GT(small.missing_experts_bytes, 40 * kGiB);
  EXPECT_GT(small.disk_bytes, 20 * kGiB) << "the n-gram table stays on the disk";
  EXPECT_LT(small.pinned_bytes, kGiB);
  EXPECT_THAT(plan_text(subject_, small), Not(HasSubstr("TOO LITTLE")));
  subject_.ram_bytes = 32 * kGiB;
  EXPECT_THAT(plan_text(subject_, small), HasSubstr("TOO LITTLE"));
  EXPECT_THAT(comparison_text(subject_, {small, large}), HasSubstr("yes, RAM short"));
  subject_.ram_bytes = 1 << 20;
  EXPECT_THAT(card(24).fits.message(), HasSubstr("not enough host memory"));
}

TEST_F(PlannerTest, TheHostDeviceTakesHostMemory) {
  const PlannedMachine machine = plan_host(subject_);
  ASSERT_TRUE(machine.fits.ok()) << machine.fits.message();
  EXPECT_EQ(machine.pinned_bytes, machine.plan.total_bytes());
  EXPECT_EQ(machine.plan.slots, 48u * 512 / 4) << "auto: a quarter";
  const std::string text = plan_text(subject_, machine);
  EXPECT_THAT(text, HasSubstr("host device, no GPU"));
  EXPECT_THAT(text, HasSubstr("of 96.00 GiB"));
  EXPECT_THAT(text, HasSubstr("unknown: no routing profile"));
  subject_.ram_bytes = kGiB / 4;
  EXPECT_EQ(plan_host(subject_).fits.code(), Code::kResourceExhausted);
}

TEST_F(PlannerTest, ComparesCardsInATable) {
  const std::vector<PlannedMachine> machines = {card(4), card(12), card(24)};
  const std::string text = comparison_text(subject_, machines);
  EXPECT_THAT(text, HasSubstr("card       memory   slots   share"));
  EXPECT_THAT(text, HasSubstr("\n12GiB   12.00 GiB"));
  EXPECT_THAT(text, HasSubstr("\n4GiB: not enough device memory"));
}

TEST_F(PlannerTest, ProgramsGetEveryNumber) {
  const std::vector<PlannedMachine> machines = {card(4), card(24)};
  const auto parsed = boost::json::parse(plan_json(subject_, machines));
  const auto& list = parsed.at("machines").as_array();
  ASSERT_EQ(list.size(), 2u);
  EXPECT_FALSE(list[0].at("fits").as_bool());
  EXPECT_THAT(std::string(list[0].at("error").as_string()), HasSubstr("not enough"));
  EXPECT_TRUE(list[1].at("fits").as_bool());
  EXPECT_TRUE(list[1].at("error").is_null());
  EXPECT_TRUE(list[1].at("hit_rate").is_null());
  EXPECT_EQ(list[1].at("slots").to_number<uint32_t>(), machines[1].plan.slots);
  uint64_t sum = 0;
  for (const auto& item : list[1].at("items").as_array()) sum += item.at("bytes").to_number<uint64_t>();
  EXPECT_EQ(sum, list[1].at("needed_bytes").to_number<uint64_t>());
  EXPECT_EQ(sum, machines[1].plan.total_bytes());
}

TEST(Cards, AreFoundByNameWhateverTheCase) {
  const auto found = find_cards(std::vector<std::string>{"rtx 4090", "H200"});
  ASSERT_TRUE(found) << found.error().message();
  ASSERT_EQ(found->size(), 2u);
  EXPECT_EQ((*found)[0].name, "RTX 4090");
  EXPECT_EQ((*found)[0].bytes >> 30, 23u);
  EXPECT_EQ(find_cards(std::vector<std::string>{"all"})->size(), known_cards().size());
  const auto unknown = find_cards(std::vector<std::string>{"RTX 4099"});
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(unknown.error().message(), HasSubstr("RTX 4090"));
}

}  // namespace
}  // namespace strata::cli
