#include "services/config/load.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace strata::config {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Load : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "strata-load-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    file_ = (folder_ / "c.yaml").string();
  }
  void TearDown() override { fs::remove_all(folder_); }

  void write(std::string_view text) { std::ofstream(file_, std::ios::binary) << text; }

  // All faults, with the file's name shortened to c.yaml.
  std::vector<std::string> faults(std::string_view text, std::vector<std::string> sets = {}) {
    write(text);
    auto found = find_faults({.path = file_, .sets = std::move(sets)});
    for (std::string& fault : found) {
      if (auto at = fault.find(file_); at != std::string::npos) fault.replace(at, file_.size(), "c.yaml");
    }
    return found;
  }

  std::unique_ptr<Settings> loaded(std::string_view text, std::vector<std::string> sets = {}) {
    write(text);
    auto settings = load({.path = file_, .sets = std::move(sets)});
    EXPECT_TRUE(settings.has_value()) << settings.error().message();
    return settings ? std::move(*settings) : std::make_unique<Settings>();
  }

  fs::path folder_;
  std::string file_;
};

struct Variable {
  Variable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ~Variable() { ::unsetenv(name_); }
  const char* name_;
};

TEST_F(Load, ReadsListsFromEveryLayer) {
  using Origins = std::vector<std::string>;
  const Origins both = {"https://a.example", "http://[::1]:3000"};
  for (const char* text : {"gateway:\n  cors_origins: [https://a.example, \"http://[::1]:3000\"]\n",
                           "gateway:\n  cors_origins:\n    - https://a.example\n    - http://[::1]:3000\n",
                           "gateway:\n  cors_origins: \"[https://a.example, http://[::1]:3000]\"\n"}) {
    EXPECT_EQ(loaded(text)->gateway_cors_origins().list, both) << text;
  }
  EXPECT_EQ(loaded("gateway:\n  cors_origins: https://a.example\n")->gateway_cors_origins().list.size(), 1u);
  EXPECT_THAT(loaded("gateway:\n  cors_origins: []\n")->gateway_cors_origins().list, IsEmpty());
  EXPECT_EQ(loaded("", {"gateway.cors_origins=[https://a.example, \"http://[::1]:3000\"]"})
                ->gateway_cors_origins()
                .list,
            both);
  Variable variable("STRATA__GATEWAY__CORS_ORIGINS", "[https://a.example, http://[::1]:3000]");
  EXPECT_EQ(loaded("")->gateway_cors_origins().list, both);
}

TEST_F(Load, RefusesListsWhereThereAreNone) {
  EXPECT_THAT(faults("gateway:\n  listen: [a, b]\n"),
              ElementsAre("c.yaml:2:3: gateway.listen: expected a single value, got a list"));
  EXPECT_THAT(faults("", {"gateway.listen=[a]"}),
              ElementsAre("--set gateway.listen=[a]: expected a single value, got a list"));
  EXPECT_THAT(faults("gateway:\n  cors_origins: [{a: b}]\n"),
              ElementsAre("c.yaml:2:3: gateway.cors_origins: item 1: expected a single value, got a map"));
  EXPECT_THAT(faults("gateway:\n  cors_origins: {a: b}\n"),
              ElementsAre("c.yaml:2:3: gateway.cors_origins: expected a single value, got a map"));
}

TEST_F(Load, KeysLeaveTheLoaderAsHashesAndAreInNoErrorAndNotShown) {
  auto settings = loaded("gateway:\n  api_keys: [\"abc\", other-key]\n");
  EXPECT_EQ(settings->gateway_api_keys().list[1], hash_secret("other-key"));
  for (bool comments : {false, true}) {
    const std::string handed_on = to_yaml(*settings, comments);
    EXPECT_THAT(handed_on, HasSubstr(hash_secret("other-key").text()));
    EXPECT_THAT(handed_on, ::testing::Not(HasSubstr("other-key")));
    EXPECT_EQ(loaded(handed_on)->gateway_api_keys().list, settings->gateway_api_keys().list);
    const std::string shown = to_yaml(*settings, comments, SecretsShown::kHidden);
    EXPECT_THAT(shown, HasSubstr("  # api_keys: 2 given, not shown\n"));
    EXPECT_THAT(shown, ::testing::Not(HasSubstr(hash_secret("other-key").text())));
    EXPECT_THAT(to_yaml(*loaded(shown), comments, SecretsShown::kHidden), HasSubstr("  api_keys: []\n"));
  }
  for (const auto& fault :
       {faults("gateway:\n  api_keys: [fine, \"my secret\"]\n"),
        faults("gateway:\n  api_keys: \"my secret\"\n"), faults("", {"gateway.api_keys=[\"my secret\"]"}),
        faults("", {"gateway.api_keys={my secret: 1}"})}) {
    ASSERT_EQ(fault.size(), 1u);
    EXPECT_THAT(fault[0], HasSubstr("gateway.api_keys"));
    EXPECT_THAT(fault[0], ::testing::Not(HasSubstr("my secret")));
  }
}

TEST_F(Load, ReadsTheFileOverTheDefaults) {
  auto settings = loaded("experts:\n  slots: 25%\nnumerics: exact\ncpu_experts:\n  pin: off\n");
  EXPECT_EQ(settings->experts_slots().of(1000, 0), 250u);
  EXPECT_TRUE(settings->numerics() == "exact");
  EXPECT_TRUE(settings->cpu_experts_pin() == "off") << "YAML 1.1 would make a truth value of it";
  EXPECT_EQ(settings->engine_sequences(), 4u);
}

TEST_F(Load, TakesAnEmptyFileAndEmptySections) {
  EXPECT_THAT(faults(""), IsEmpty());
  EXPECT_THAT(faults("# nothing\n"), IsEmpty());
  EXPECT_THAT(faults("experts:\n"), IsEmpty());
}

TEST_F(Load, PutsTheEnvironmentOverTheFileAndSetOverBoth) {
  Variable slots("STRATA__EXPERTS__SLOTS", "7");
  Variable numerics("STRATA__NUMERICS", "exact");
  Variable other("STRATA_GOLDEN_TINY", "not ours");
  auto settings = loaded("experts:\n  slots: 5\n  policy: lru\n");
  EXPECT_EQ(settings->experts_slots().of(100, 0), 7u);
  EXPECT_TRUE(settings->experts_policy() == "lru");
  EXPECT_TRUE(settings->numerics() == "exact");
  settings = loaded("experts:\n  slots: 5\n", {"experts.slots=9", "experts.slots=11"});
  EXPECT_EQ(settings->experts_slots().of(100, 0), 11u) << "the last one counts";
  write("experts:\n  slots: 5\n");
  EXPECT_EQ((*load({.path = file_, .use_environment = false}))->experts_slots().of(100, 0), 5u);
}

TEST_F(Load, NamesTheEnvironmentVariableThatIsWrong) {
  {
    Variable slots("STRATA__EXPERTS__SLOTS", "many");
    EXPECT_THAT(faults(""), ElementsAre(HasSubstr("STRATA__EXPERTS__SLOTS: experts.slots: expected auto")));
  }
  Variable unknown("STRATA__EXPERTS__SLOT", "3");
  EXPECT_THAT(faults(""),
              ElementsAre("STRATA__EXPERTS__SLOT: no setting experts.slot; did you mean experts.slots?"));
}

TEST_F(Load, NamesThePlaceOfABadValue) {
  EXPECT_THAT(
      faults("engine:\n  sequences: 4\n  context_tokens: -1\n"),
      ElementsAre("c.yaml:3:19: engine.context_tokens: expected a whole number, 0 to 1048576, got '-1'"));
}

TEST_F(Load, RefusesUnknownKeysAndNamesTheNearest) {
  EXPECT_THAT(faults("experts:\n  slot: 4\n"),
              ElementsAre("c.yaml:2:3: experts.slot: no such setting; did you mean experts.slots?"));
  EXPECT_THAT(faults("expert:\n  slots: 4\n"),
              ElementsAre("c.yaml:1:1: expert: no such setting; did you mean experts?"));
  EXPECT_THAT(faults("experts.slots: 4\n"),
              ElementsAre("c.yaml:1:1: experts.slots: write it as the key slots in the section experts"));
  EXPECT_THAT(faults("", {"experts.slot=4"}),
              ElementsAre("--set experts.slot=4: no setting experts.slot; did you mean experts.slots?"));
}

TEST_F(Load, CanLetUnknownKeysPass) {
  write("experts:\n  slot: 4\n  slots: 5\n");
  ::testing::internal::CaptureStderr();
  auto settings = load({.path = file_, .allow_unknown = true});
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("experts.slot: no such setting"));
  ASSERT_TRUE(settings.has_value());
  EXPECT_EQ((*settings)->experts_slots().of(100, 0), 5u);
}

TEST_F(Load, RefusesDuplicateKeys) {
  EXPECT_THAT(faults("experts:\n  slots: 4\n  slots: 5\n"),
              ElementsAre("c.yaml:3:3: experts.slots: the key appears twice"));
  EXPECT_THAT(faults("experts:\n  slots: 4\nexperts:\n  policy: lru\n"),
              ElementsAre("c.yaml:3:1: experts: the key appears twice"));
}

TEST_F(Load, RefusesMapsAndListsAndNothingWhereAValueBelongs) {
  EXPECT_THAT(faults("experts:\n  slots: [4]\n"),
              ElementsAre("c.yaml:2:3: experts.slots: expected a single value, got a list"));
  EXPECT_THAT(faults("experts:\n  slots: {a: 4}\n"),
              ElementsAre("c.yaml:2:3: experts.slots: expected a single value, got a map"));
  EXPECT_THAT(
      faults("experts:\n  profile:\n"),
      ElementsAre(
          "c.yaml:2:3: experts.profile: expected a single value, got nothing (\"\" is the empty value)"));
  EXPECT_THAT(faults("experts: 4\n"),
              ElementsAre("c.yaml:1:1: experts: expected settings below it, got a single value"));
  EXPECT_THAT(faults("- experts\n"), ElementsAre("c.yaml:1:1: expected sections with settings, got a list"));
  EXPECT_THAT(faults("? [a]\n: 4\n"), ElementsAre(HasSubstr("expected the name of a setting, got a list")));
}

TEST_F(Load, ReportsEveryFault) {
  EXPECT_THAT(faults("experts:\n  slots: x\n  nosuch: 1\n", {"log.level=loud"}).size(), 3u);
  write("experts:\n  slots: x\n  nosuch: 1\n");
  EXPECT_THAT(load({.path = file_}).error().message(), HasSubstr("experts.slots: expected auto"));
  EXPECT_THAT(load({.path = file_}).error().message(), EndsWith("(and 1 more: strata config check)"));
}

TEST_F(Load, NamesThePlaceOfASyntaxError) {
  EXPECT_THAT(faults("experts:\n\tslots: 4\n"), ElementsAre(HasSubstr("c.yaml:2:")));
  EXPECT_THAT(faults("a: [1\n"), ElementsAre(HasSubstr("c.yaml:")));
  EXPECT_THAT(faults("a: *nowhere\n"), ElementsAre(HasSubstr("c.yaml:1:")));
  EXPECT_THAT(faults("experts:\n  slots: 1\n---\nexperts:\n  slots: 2\n"),
              ElementsAre(HasSubstr("expected one document, got 2")));
  EXPECT_FALSE(faults(std::string(100000, '[')).empty());
}

TEST_F(Load, ReadsSetValuesAsYaml) {
  EXPECT_EQ(loaded("", {"model.name=\"a: b\""})->model_name(), "a: b");
  EXPECT_EQ(loaded("model:\n  name: x\n", {"model.name="})->model_name(), "");
  EXPECT_EQ(loaded("", {"gateway.listen=127.0.0.1:0"})->gateway_listen(), "127.0.0.1:0");
  EXPECT_THAT(faults("", {"model.name=[a]"}), ElementsAre(HasSubstr("expected a single value, got a list")));
  EXPECT_THAT(faults("", {"model.name"}), ElementsAre("--set model.name: expected PATH=VALUE"));
  EXPECT_THAT(faults("", {"gateway.listen=8080"}),
              ElementsAre(HasSubstr("gateway.listen: expected HOST:PORT")));
}

TEST_F(Load, MakesPathsAbsoluteFromTheFilesFolder) {
  EXPECT_EQ(loaded("model:\n  path: ../models/m.gguf\n")->model_path().string(),
            (folder_.parent_path() / "models/m.gguf").string());
  EXPECT_EQ(loaded("model:\n  path: /abs/m.gguf\n")->model_path().string(), "/abs/m.gguf");
  EXPECT_TRUE(loaded("")->experts_profile().empty());
}

TEST_F(Load, ResolvesPathsOfSetFromTheWorkingDirectoryIfTheyExistThere) {
  fs::path before = fs::current_path();
  fs::path here = folder_ / "here";
  fs::create_directory(here);
  std::ofstream(here / "m.gguf") << "x";
  fs::current_path(here);
  EXPECT_EQ(loaded("", {"model.path=m.gguf"})->model_path().string(), (here / "m.gguf").string());
  EXPECT_EQ(loaded("", {"model.path=other.gguf"})->model_path().string(), (folder_ / "other.gguf").string());
  fs::current_path(before);
}

TEST_F(Load, SaysWhatIsWrongWithTheFileItself) {
  EXPECT_EQ(load({.path = file_}).error().code(), Code::kNotFound);
  EXPECT_THAT(load({.path = file_}).error().message(), HasSubstr(file_));
  EXPECT_THAT(load({.path = folder_.string()}).error().message(), HasSubstr("is a folder"));
  write(std::string(2 << 20, '#'));
  EXPECT_THAT(load({.path = file_}).error().message(), HasSubstr("more than"));
}

TEST_F(Load, ChecksSettingsAgainstEachOther) {
  EXPECT_THAT(faults("supervisor:\n  backoff_ms: 500\n  backoff_max_ms: 400\n"),
              ElementsAre(HasSubstr("at most supervisor.backoff_max_ms")));
}

TEST_F(Load, WritesYamlThatReadsBackTheSame) {
  auto settings =
      loaded("experts:\n  slots: 12.5%\n  decay_tokens: 1e9\n",
             {"model.name=\"a \\\"b\\\": \\\\ # \\t\\x01 \u00e4\"", "model.path=/m/with space/x.gguf"});
  EXPECT_EQ(settings->model_name(), "a \"b\": \\ # \t\x01 \u00e4");
  for (bool comments : {false, true}) {
    write(to_yaml(*settings, comments));
    auto again = load({.path = file_});
    ASSERT_TRUE(again.has_value()) << again.error().message();
    EXPECT_EQ(to_yaml(**again, false), to_yaml(*settings, false));
    EXPECT_EQ(config_hash(**again), config_hash(*settings));
  }
  for (const char* name : {"null", "~", "- x", "*a", "&a", "!t", "%d", "@x", "`y", "x:", "{}", "[]", "true",
                           " x ", "#c", "a #c"}) {
    settings->model_name.set(name);
    write(to_yaml(*settings, false));
    auto again = load({.path = file_});
    ASSERT_TRUE(again.has_value()) << name;
    EXPECT_EQ((*again)->model_name(), name);
  }
}

TEST_F(Load, HashesWhatCounts) {
  auto first = config_hash(*loaded("experts:\n  slots: 4\n"));
  EXPECT_EQ(first.size(), 16u);
  EXPECT_EQ(first, config_hash(*loaded("# a comment\nexperts: {slots: 4}\n")));
  EXPECT_NE(first, config_hash(*loaded("experts:\n  slots: 5\n")));
}

TEST_F(Load, ExplainsEverySettingInComments) {
  Settings settings;
  std::string text = to_yaml(settings, true);
  for (const PropertyBase* property : settings.all())
    EXPECT_THAT(text, HasSubstr(std::string(property->description().substr(0, 30))));
  EXPECT_THAT(text,
              HasSubstr("# default: 4; 1 to 16; takes effect: restart of the gpu-worker\n  sequences: 4\n"));
}

}  // namespace
}  // namespace strata::config
