// Holds for every declaration, so a new setting is covered the moment it is declared.
#include "services/config/settings.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "services/config/load.h"

namespace strata::config {
namespace {

TEST(Settings, EveryDefaultIsValid) {
  Settings settings;
  for (PropertyBase* property : settings.all()) {
    EXPECT_TRUE(property->is_default()) << property->name();
    EXPECT_TRUE(property->parse(property->default_text()).ok()) << property->name();
    EXPECT_TRUE(property->is_default()) << property->name();
  }
}

TEST(Settings, EveryExampleIsValidAndReadsBack) {
  Settings settings;
  for (PropertyBase* property : settings.all()) {
    ASSERT_FALSE(property->meta().example.empty()) << property->name();
    ASSERT_TRUE(property->parse(property->meta().example).ok()) << property->name();
    std::string text = property->text();
    EXPECT_TRUE(property->parse(text).ok()) << property->name();
    EXPECT_EQ(property->text(), text) << property->name();
  }
}

TEST(Settings, EveryDescriptionIsASentence) {
  Settings settings;
  for (PropertyBase* property : settings.all()) {
    EXPECT_GT(property->description().size(), 5u) << property->name();
    EXPECT_TRUE(property->description().ends_with('.')) << property->name();
  }
}

TEST(Settings, EveryNumberIsRefusedJustOutsideItsBounds) {
  Settings settings;
  int checked = 0;
  for (PropertyBase* property : settings.all()) {
    if (auto* whole = dynamic_cast<Property<uint32_t>*>(property)) {
      auto [min, max] = std::pair(whole->bounds().min, whole->bounds().max);
      ASSERT_TRUE(min && max) << property->name() << " has no bounds";
      EXPECT_TRUE(property->parse(fmt::format("{}", *min)).ok()) << property->name();
      EXPECT_TRUE(property->parse(fmt::format("{}", *max)).ok()) << property->name();
      EXPECT_FALSE(property->parse(fmt::format("{}", int64_t{*min} - 1)).ok()) << property->name();
      EXPECT_FALSE(property->parse(fmt::format("{}", int64_t{*max} + 1)).ok()) << property->name();
      ++checked;
    } else if (auto* real = dynamic_cast<Property<double>*>(property)) {
      auto [min, max] = std::pair(real->bounds().min, real->bounds().max);
      ASSERT_TRUE(min && max) << property->name() << " has no bounds";
      EXPECT_TRUE(property->parse(fmt::format("{}", *min)).ok()) << property->name();
      EXPECT_TRUE(property->parse(fmt::format("{}", *max)).ok()) << property->name();
      EXPECT_FALSE(property->parse(fmt::format("{}", *min - 1)).ok()) << property->name();
      EXPECT_FALSE(property->parse(fmt::format("{}", *max + 1)).ok()) << property->name();
      ++checked;
    }
  }
  EXPECT_GT(checked, 10);
}

TEST(Settings, EveryChoiceIsTakenAndNothingElse) {
  Settings settings;
  for (PropertyBase* property : settings.all()) {
    auto* choice = dynamic_cast<Property<Choice>*>(property);
    if (choice == nullptr) continue;
    ASSERT_GE(choice->bounds().choices.size(), 2u) << property->name();
    for (const std::string& word : choice->bounds().choices)
      EXPECT_TRUE(property->parse(word).ok()) << property->name();
    EXPECT_FALSE(property->parse("").ok()) << property->name();
    EXPECT_FALSE(property->parse("no-such-word").ok()) << property->name();
  }
}

TEST(Settings, TheReferencePageIsCurrent) {
  std::ifstream in(STRATA_SOURCE_DIR "/docs/configuration.md");
  std::ostringstream page;
  page << in.rdbuf();
  EXPECT_EQ(page.str(), reference_markdown()) << "run: strata config reference > docs/configuration.md";
}

TEST(Settings, TheShippedConfigurationsAreValid) {
  for (const auto& entry : std::filesystem::directory_iterator(STRATA_SOURCE_DIR "/configs")) {
    if (entry.path().extension() != ".yaml") continue;
    EXPECT_THAT(find_faults({.path = entry.path().string(), .use_environment = false}), ::testing::IsEmpty());
  }
}

}  // namespace
}  // namespace strata::config
