#include "services/config/property.h"

#include <gmock/gmock.h>

namespace strata::config {
namespace {

using ::testing::HasSubstr;

template <class T>
struct One : PropertySet {
  explicit One(T value, Bounds<T> bounds = {})
      : property(this, "section.name", "A setting.", {}, std::move(value), std::move(bounds)) {}
  Property<T> property;
  Status parse(std::string_view text) { return property.parse(text); }
};

TEST(Property, TakesWholeNumbersWithinBounds) {
  One<uint32_t> number(5, {.min = 1, .max = 16});
  EXPECT_TRUE(number.parse("16").ok());
  EXPECT_EQ(number.property(), 16u);
  for (std::string_view bad : {"0", "17", "-1", "+1", "1.0", "4294967296", "99999999999999999999", "12x",
                               "x12", " 1", "1 ", "", "0x10", "1e1"}) {
    Status status = number.parse(bad);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << bad;
    EXPECT_EQ(status.message(), fmt::format("expected a whole number, 1 to 16, got '{}'", bad));
  }
  EXPECT_EQ(number.property(), 16u) << "a refused text leaves the value alone";
}

TEST(Property, TakesNumbersButNeitherInfinityNorNan) {
  One<double> number(1.0, {.min = 0.0, .max = 2.0});
  EXPECT_TRUE(number.parse("0.25").ok());
  EXPECT_TRUE(number.parse("1e-3").ok());
  EXPECT_DOUBLE_EQ(number.property(), 0.001);
  for (std::string_view bad : {"nan", "inf", "-inf", "2.0001", "-0.1", "1,5", "1.5.", "1e999", ""})
    EXPECT_FALSE(number.parse(bad).ok()) << bad;
  One<double> unbounded(1.0);
  EXPECT_FALSE(unbounded.parse("inf").ok());
  EXPECT_FALSE(unbounded.parse("nan").ok());
}

TEST(Property, TakesCounts) {
  One<Count> count(Count::automatic(), {.min = Count(0), .max = Count(8)});
  EXPECT_EQ(count.property.text(), "auto");
  EXPECT_TRUE(count.property.is_default());
  EXPECT_EQ(count.property.range_text(), "auto, or 0 to 8");
  ASSERT_TRUE(count.parse("3").ok());
  EXPECT_EQ(count.property().number, 3U);
  EXPECT_EQ(count.property.text(), "3");
  ASSERT_TRUE(count.parse("auto").ok());
  EXPECT_FALSE(count.property().number);
  for (std::string_view bad : {"", "9", "-1", "1.5", "Auto", "50%"}) {
    EXPECT_FALSE(count.parse(bad).ok()) << bad;
  }
  EXPECT_EQ(count.parse("9").message(), "expected auto or 0 to 8, got '9'");
}

TEST(Property, TakesListsOfWords) {
  One<Words> words(Words{});
  EXPECT_EQ(words.property.text(), "[]");
  EXPECT_TRUE(words.property.is_default());
  const std::pair<std::string_view, std::vector<std::string>> right[] = {{"[a, b]", {"a", "b"}},
                                                                         {"[a,b ]", {"a", "b"}},
                                                                         {"a", {"a"}},
                                                                         {"a, b", {"a", "b"}},
                                                                         {"[]", {}},
                                                                         {"[ ]", {}},
                                                                         {"", {}},
                                                                         {"[x[1], y]", {"x[1]", "y"}}};
  for (const auto& [text, list] : right) {
    ASSERT_TRUE(words.parse(text).ok()) << text;
    EXPECT_EQ(words.property().list, list) << text;
    EXPECT_EQ(words.property.items(), list) << text;
    ASSERT_TRUE(words.parse(words.property.text()).ok());
    EXPECT_EQ(words.property().list, list) << "as written: " << words.property.text();
  }
  EXPECT_EQ(words.parse("[a,,b]").message(), "item 2 is empty");
  EXPECT_EQ(words.parse("[,]").message(), "item 1 is empty");
  EXPECT_EQ(words.property.parse_items({"a", ""}).message(), "item 2 is empty");
  One<uint32_t> number(5, {.min = 1, .max = 16});
  EXPECT_EQ(number.property.parse_items({"6"}).message(), "expected a single value, got a list");
}

TEST(Property, KeepsSecretsAsHashes) {
  One<Secrets> keys(Secrets{});
  EXPECT_TRUE(keys.property.is_secret());
  ASSERT_TRUE(keys.parse("[abc, two]").ok());
  ASSERT_EQ(keys.property().list.size(), 2u);
  EXPECT_EQ(keys.property().list[0], hash_secret("abc"));
  const std::string text = keys.property.text();
  EXPECT_THAT(text, ::testing::Not(HasSubstr("two")));
  ASSERT_TRUE(keys.parse(text).ok());
  EXPECT_EQ(keys.property().list[1], hash_secret("two"));
  Status status = keys.parse("[fine, not fine]");
  EXPECT_THAT(status.message(), HasSubstr("item 2: expected"));
  EXPECT_THAT(status.message(), ::testing::Not(HasSubstr("not fine")));
}

TEST(Property, OriginsAreWhatBrowsersSend) {
  One<Words> origins(Words{}, {.fault = origins_fault});
  for (std::string_view right : {"[https://app.example, http://localhost:3000]", "http://[::1]:8080",
                                 "chrome-extension://abcdef", "https://app.example:8443", "[]"}) {
    EXPECT_TRUE(origins.parse(right).ok()) << right;
  }
  for (std::string_view bad : {"*", "app.example", "https://", "https://app.example/", "https://App.example",
                               "null", "https://*.example", "://x", "https://user@app.example"}) {
    EXPECT_THAT(origins.parse(bad).message(), HasSubstr("expected origins such as")) << bad;
  }
  for (std::string_view bad : {"https://app.example:443", "http://localhost:80"})
    EXPECT_THAT(origins.parse(bad).message(), HasSubstr("usual port")) << bad;
}

TEST(Property, TakesSizes) {
  One<Size> size(Size::automatic());
  EXPECT_EQ(size.property.text(), "auto");
  EXPECT_FALSE(size.property().bytes);
  const std::pair<std::string_view, uint64_t> right[] = {{"24GiB", uint64_t{24} << 30},
                                                         {"12 GiB", uint64_t{12} << 30},
                                                         {"1.5MiB", 3u << 19},
                                                         {"4KiB", 4096},
                                                         {"0", 0},
                                                         {"4097", 4097}};
  for (const auto& [text, bytes] : right) {
    ASSERT_TRUE(size.parse(text).ok()) << text;
    EXPECT_EQ(size.property().bytes, bytes) << text;
    One<Size> again(Size::automatic());
    ASSERT_TRUE(again.parse(size.property.text()).ok()) << size.property.text();
    EXPECT_EQ(again.property().bytes, bytes) << "as written: " << size.property.text();
  }
  EXPECT_EQ(size.property.text(), "4097");
  for (std::string_view bad : {"", "-1", "GiB", "24GB", "24gib", "nan", "infGiB", "1  GiB", "9999999GiB"})
    EXPECT_FALSE(size.parse(bad).ok()) << bad;
  EXPECT_EQ(size.parse("24GB").message(), "expected auto or a size such as 24GiB or 512MiB, got '24GB'");
}

TEST(Property, TakesAmounts) {
  One<Amount> amount(Amount::automatic());
  EXPECT_EQ(amount.property.text(), "auto");
  EXPECT_EQ(amount.property().of(1000, 7), 7u);
  ASSERT_TRUE(amount.parse("25%").ok());
  EXPECT_EQ(amount.property.text(), "25%");
  EXPECT_EQ(amount.property().of(1000, 7), 250u);
  EXPECT_EQ(amount.property().of(10, 7), 3u) << "rounded to the nearest";
  ASSERT_TRUE(amount.parse("12.5%").ok());
  EXPECT_EQ(amount.property.text(), "12.5%");
  ASSERT_TRUE(amount.parse("0").ok());
  EXPECT_EQ(amount.property().of(1000, 7), 0u);
  ASSERT_TRUE(amount.parse("4000000000").ok());
  EXPECT_EQ(amount.property().of(1000, 7), 1000u) << "capped at the total";
  for (std::string_view bad :
       {"", "%", "-1", "-5%", "101%", "25 %", "25%%", "all", "Auto", "1.5", "4294967296", "nan%"}) {
    EXPECT_FALSE(amount.parse(bad).ok()) << bad;
  }
}

TEST(Property, TakesOneOfTheWordsAndNamesTheNearest) {
  One<Choice> choice(Choice{"lru"}, {.choices = {"lfu-decay", "lru", "static"}});
  EXPECT_TRUE(choice.parse("static").ok());
  EXPECT_TRUE(choice.property() == "static");
  EXPECT_EQ(choice.parse("lfu_decay").message(),
            "expected lfu-decay, lru or static, got 'lfu_decay'; did you mean lfu-decay?");
  EXPECT_FALSE(choice.parse("LRU").ok());
}

TEST(Property, TakesTruthValues) {
  One<bool> truth(false);
  EXPECT_TRUE(truth.parse("true").ok());
  EXPECT_TRUE(truth.property());
  EXPECT_FALSE(truth.parse("yes").ok());
}

TEST(Property, RefusesAZeroByte) {
  One<std::string> text("");
  EXPECT_FALSE(text.parse(std::string_view("a\0b", 3)).ok());
  One<Path> path(Path{});
  EXPECT_FALSE(path.parse(std::string_view("a\0b", 3)).ok());
}

TEST(Property, CutsLongValuesInErrors) {
  One<uint32_t> number(5);
  EXPECT_LT(number.parse(std::string(10000, 'x')).message().size(), 150u);
}

TEST(Property, ChecksListenAddresses) {
  for (const char* good : {"127.0.0.1:8080", "localhost:0", "[::1]:65535", "0.0.0.0:80"})
    EXPECT_EQ(listen_address_fault(good), "") << good;
  for (const char* bad : {"", "8080", ":8080", "localhost", "localhost:", "localhost:65536", "localhost:-1",
                          "::1:80", "a b:80", "[]:1", "h:8x"}) {
    EXPECT_THAT(listen_address_fault(bad), HasSubstr("expected HOST:PORT")) << bad;
  }
  EXPECT_EQ(optional_listen_address_fault(""), "");
}

TEST(PropertyDeathTest, RefusesTheSameNameTwice) {
  struct Twice : PropertySet {
    Property<bool> a{this, "x", "X.", {}, false};
    Property<bool> b{this, "x", "X.", {}, false};
  };
  EXPECT_DEATH(Twice(), "declared twice");
}

}  // namespace
}  // namespace strata::config
