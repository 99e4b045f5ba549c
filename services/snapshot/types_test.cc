#include "services/snapshot/types.h"

#include <gtest/gtest.h>

#include <set>

#include "services/snapshot/keys.h"
#include "services/snapshot/store_fixture.h"

namespace strata::snapshot {
namespace {

TEST(Hash128, TextAndBack) {
  const Hash128 hash{.high = 0x0123456789abcdef, .low = 0xfedcba9876543210};
  EXPECT_EQ(hash.text(), "0123456789abcdeffedcba9876543210");
  EXPECT_EQ(Hash128::parse(hash.text()).value(), hash);
  for (const char* wrong : {"", "0123", "0123456789ABCDEFfedcba9876543210",
                            "0123456789abcdeffedcba987654321g", "0123456789abcdeffedcba98765432100"}) {
    const auto parsed = Hash128::parse(wrong);
    ASSERT_FALSE(parsed) << wrong;
    EXPECT_EQ(parsed.error().code(), Code::kInvalidArgument);
  }
}

TEST(Hash128, BytesAreInTheOrderOfTheText) {
  const Hash128 hash{.high = 0x0123456789abcdef, .low = 0xfedcba9876543210};
  EXPECT_EQ(hash.bytes(),
            std::string("\x01\x23\x45\x67\x89\xab\xcd\xef\xfe\xdc\xba\x98\x76\x54\x32\x10", 16));
  EXPECT_EQ(Hash128::from_bytes(hash.bytes()).value(), hash);
  for (const std::size_t size : {0, 15, 17}) {
    EXPECT_EQ(Hash128::from_bytes(std::string(size, 'x')).error().code(), Code::kInvalidArgument) << size;
  }
}

TEST(StateIdentity, EveryFieldIsPartOfTheDigest) {
  std::set<std::string> digests{digest(test_identity()).text()};
  const auto differs = [&](auto change) {
    StateIdentity other = test_identity();
    change(other);
    return digests.insert(digest(other).text()).second;
  };
  EXPECT_TRUE(differs([](auto& i) { i.model_fingerprint += "0"; }));
  EXPECT_TRUE(differs([](auto& i) { i.numerics = "exact"; }));
  EXPECT_TRUE(differs([](auto& i) { i.kv_format = "float16"; }));
  EXPECT_TRUE(differs([](auto& i) { ++i.layout_version; }));
  EXPECT_TRUE(differs([](auto& i) { ++i.page_tokens; }));
  EXPECT_TRUE(differs([](auto& i) { ++i.page_bytes; }));
  EXPECT_TRUE(differs([](auto& i) { ++i.fixed_bytes; }));
  EXPECT_TRUE(differs([](auto& i) { i.parts[1].name = "conv"; }));
  EXPECT_TRUE(differs([](auto& i) { ++i.parts[1].offset; }));
  EXPECT_TRUE(differs([](auto& i) { --i.parts[1].bytes; }));
  EXPECT_TRUE(differs([](auto& i) { i.parts.pop_back(); }));
  EXPECT_TRUE(differs([](auto& i) { i.options = "control_vector=x\n"; }));
}

TEST(StateIdentity, ComesBackFromItsBytesAndFromNoPrefixOfThem) {
  const auto bytes = serialize(test_identity());
  EXPECT_EQ(parse_identity(bytes).value(), test_identity());
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    const auto cut = parse_identity(std::span(bytes).first(length));
    ASSERT_FALSE(cut) << length;
    EXPECT_EQ(cut.error().code(), Code::kDataLoss);
  }
  auto longer = bytes;
  longer.push_back(std::byte{});
  EXPECT_FALSE(parse_identity(longer));
}

TEST(StateIdentity, RefusesWhatMakesNoSense) {
  const auto refused = [](auto change) {
    StateIdentity other = test_identity();
    change(other);
    return check_identity(other).code() == Code::kInvalidArgument;
  };
  EXPECT_TRUE(check_identity(test_identity()).ok());
  EXPECT_TRUE(refused([](auto& i) { i.model_fingerprint.clear(); }));
  EXPECT_TRUE(refused([](auto& i) { i.numerics.assign(kNameBytesMax + 1, 'x'); }));
  EXPECT_TRUE(refused([](auto& i) { i.page_tokens = 0; }));
  EXPECT_TRUE(refused([](auto& i) { i.page_bytes = 0; }));
  EXPECT_TRUE(refused([](auto& i) { i.fixed_bytes = 0; }));
  EXPECT_TRUE(refused([](auto& i) { i.parts.clear(); }));
  EXPECT_TRUE(refused([](auto& i) { i.parts[0].bytes = 0; }));
  EXPECT_TRUE(refused([](auto& i) { i.parts[1].offset = 2999; }));       // overlaps the first
  EXPECT_TRUE(refused([](auto& i) { i.parts[1].bytes = 1993; }));        // ends behind the fixed part
  EXPECT_TRUE(refused([](auto& i) { i.parts[1].bytes = UINT64_MAX; }));  // a sum would wrap
  EXPECT_TRUE(refused([](auto& i) { i.options.assign(kOptionsBytesMax + 1, 'x'); }));
}

TEST(Parts, ADamagedByteIsFoundAndNamed) {
  const StateIdentity identity = test_identity();
  auto fixed = test_fixed(test_tokens(5));
  const auto checksums = part_checksums(identity, fixed);
  EXPECT_TRUE(check_parts(identity, fixed, checksums).ok());
  fixed[3003] = std::byte{1};
  EXPECT_TRUE(check_parts(identity, fixed, checksums).ok()) << "between the parts nothing means anything";
  for (const auto& [at, name] : {std::pair(0, "delta_net"), std::pair(2999, "delta_net"),
                                 std::pair(3008, "convolution"), std::pair(4999, "convolution")}) {
    fixed[static_cast<std::size_t>(at)] ^= std::byte{4};
    const Status status = check_parts(identity, fixed, checksums);
    EXPECT_EQ(status.code(), Code::kDataLoss);
    EXPECT_NE(status.message().find(name), std::string::npos) << status.message();
    fixed[static_cast<std::size_t>(at)] ^= std::byte{4};
  }
  EXPECT_EQ(check_parts(identity, fixed, std::span(checksums).first(1)).code(), Code::kDataLoss);
}

// --- keys

class KeysTest : public testing::Test {
 protected:
  StateKeys keys(const TestTokens& tokens, const std::vector<TokenRange>& generated = {},
                 uint64_t name_space = 1) const {
    return maker_.keys(test_namespace(name_space), pack_tokens(tokens, generated).value());
  }
  KeyMaker maker_{StoreSeed{std::byte{1}}, digest(test_identity()), kTestPageTokens};
};

TEST_F(KeysTest, OneKeyPerFullPageAndAnIdOfItsOwn) {
  for (uint32_t count : {1U, 3U, 4U, 5U, 8U, 23U, 24U}) {
    const StateKeys made = keys(test_tokens(count));
    EXPECT_EQ(made.pages.size(), count / kTestPageTokens);
    std::set<std::string> distinct{made.id.text()};
    for (const Hash128& key : made.pages) distinct.insert(key.text());
    EXPECT_EQ(distinct.size(), made.pages.size() + 1)
        << "a state that ends with a page is not called like the page";
  }
}

TEST_F(KeysTest, PagesAreSharedUpToTheFirstDifference) {
  TestTokens other = test_tokens(20);
  other[9] = 7;
  const StateKeys a = keys(test_tokens(20));
  const StateKeys b = keys(other);
  EXPECT_EQ(a.pages[0], b.pages[0]);
  EXPECT_EQ(a.pages[1], b.pages[1]);
  for (std::size_t page = 2; page < 5; ++page) EXPECT_NE(a.pages[page], b.pages[page]) << page;
  EXPECT_EQ(keys(test_tokens(23)).pages, a.pages);
}

TEST_F(KeysTest, NamespaceIdentitySeedAndOriginTellStatesApart) {
  const TestTokens tokens = test_tokens(8);
  const auto words = pack_tokens(tokens, {}).value();
  const Hash128 identity = digest(test_identity());
  const std::vector<TokenRange> generated{{.begin = 5, .end = 6}};
  std::set<std::string> firsts, ids;
  for (const StateKeys& made :
       {keys(tokens), keys(tokens, {}, 2),
        KeyMaker(StoreSeed{std::byte{2}}, identity, kTestPageTokens).keys(test_namespace(), words),
        KeyMaker(StoreSeed{std::byte{1}}, Hash128{.high = 1, .low = 1}, kTestPageTokens)
            .keys(test_namespace(), words)}) {
    firsts.insert(made.pages[0].text());
    ids.insert(made.id.text());
  }
  EXPECT_EQ(firsts.size(), 4u);
  EXPECT_EQ(ids.size(), 4u);
  EXPECT_EQ(keys(tokens, generated).pages[0], keys(tokens).pages[0]) << "same origins up to its end";
  EXPECT_NE(keys(tokens, generated).pages[1], keys(tokens).pages[1]);
}

// Files on disk carry these: another result means another format version.
TEST_F(KeysTest, AreTheSameForEver) {
  EXPECT_EQ(digest(test_identity()).text(), "e1b4bc7d187b16eaff6e85d40a842694");
  EXPECT_EQ(keys(test_tokens(8)).pages[1].text(), "34ff429e605a6ee33dbecc9c97c4b96c");
  EXPECT_EQ(keys(test_tokens(8)).id.text(), "015970c97b7b21d1fc93f3333247d3e8");
}

TEST(Tokens, ComeBackWithTheirOrigins) {
  const std::vector<TokenRange> generated{
      {.begin = 0, .end = 1}, {.begin = 3, .end = 6}, {.begin = 7, .end = 8}};
  const auto words = pack_tokens(test_tokens(8), generated).value();
  EXPECT_EQ(unpack_tokens(words), test_tokens(8));
  EXPECT_EQ(unpack_generated(words), generated);
}

TEST(Tokens, RefusesWhatNoEngineCanHaveSeen) {
  const auto code = [](const TestTokens& tokens, const std::vector<TokenRange>& generated) {
    const auto words = pack_tokens(tokens, generated);
    return words ? Code::kOk : words.error().code();
  };
  EXPECT_EQ(code({}, {}), Code::kInvalidArgument);
  EXPECT_EQ(code({1, -1}, {}), Code::kInvalidArgument);
  EXPECT_EQ(code({1, 2}, {{.begin = 1, .end = 1}}), Code::kInvalidArgument);
  EXPECT_EQ(code({1, 2}, {{.begin = 1, .end = 3}}), Code::kInvalidArgument);
  EXPECT_EQ(code({1, 2, 3}, {{.begin = 0, .end = 2}, {.begin = 1, .end = 3}}), Code::kInvalidArgument);
  EXPECT_EQ(code({0, INT32_MAX}, {{.begin = 0, .end = 2}}), Code::kOk);
}

}  // namespace
}  // namespace strata::snapshot
