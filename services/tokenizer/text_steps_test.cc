// The pure steps before merging: UTF-8, NFC, byte-level spelling, pre-tokenizer.

#include <gmock/gmock.h>
#include <utf8proc.h>

#include <cstdlib>

#include "services/tokenizer/byte_level.h"
#include "services/tokenizer/normalize.h"
#include "services/tokenizer/pretokenizer.h"
#include "services/tokenizer/test_vocabulary.h"
#include "services/tokenizer/utf8.h"

namespace strata::tokenizer {
namespace {

using tests::random_unicode;
using Kind = Utf8Step::Kind;

TEST(Utf8Test, ReadsEveryScalarValueBack) {
  for (char32_t value = 0; value <= 0x10FFFF; value += value < 0x3000 ? 1 : 17) {
    if (value >= 0xD800 && value <= 0xDFFF) continue;
    std::string text;
    utf8_append(text, value);
    const Utf8Step step = utf8_step(text);
    ASSERT_EQ(step.kind, Kind::kCharacter) << static_cast<uint32_t>(value);
    ASSERT_EQ(step.value, value);
    ASSERT_EQ(step.bytes, text.size());
    if (text.size() > 1) {
      ASSERT_EQ(utf8_step(text.substr(0, text.size() - 1)).kind, Kind::kIncomplete);
    }
  }
}

TEST(Utf8Test, RefusesOverlongFormsSurrogatesAndTooLargeValues) {
  for (const std::string_view text : {"\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80",
                                      "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80", "\x80", "\xFF"}) {
    EXPECT_EQ(utf8_step(text).kind, Kind::kIllFormed);
    EXPECT_EQ(utf8_step(text).bytes, 1);
  }
  EXPECT_EQ(utf8_step("\xE2\x82x").bytes, 2) << "the maximal subpart";
  EXPECT_EQ(utf8_valid_prefix("ab\xC3\xA9\xE2\x82"), 4u);
}

TEST(NormalizeTest, AgreesWithTheLibraryOnRandomText) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    const std::string text = random_unicode(seed, 60);
    utf8proc_uint8_t* raw = nullptr;
    const auto length = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                     static_cast<utf8proc_ssize_t>(text.size()), &raw,
                                     static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    ASSERT_GE(length, 0);
    const std::string expected(reinterpret_cast<char*>(raw), static_cast<std::size_t>(length));
    std::free(raw);
    ASSERT_EQ(to_nfc(text), expected) << "seed " << seed;
  }
}

TEST(NormalizeTest, LeavesLatinTextAlone) {
  EXPECT_TRUE(is_plainly_nfc("plain, \xC3\xA9 and \xCB\xBF"));
  EXPECT_FALSE(is_plainly_nfc("e\xCC\x81"));
  EXPECT_EQ(to_nfc("e\xCC\x81"), "\xC3\xA9");
}

TEST(NormalizeTest, OrdersAHostileRunOfMarksInBoundedTime) {
  // Alternating classes 230 and 220: a bubble sort would need 10^10 exchanges.
  std::string text = "e";
  for (int i = 0; i < 200'000; ++i) text += i % 2 == 0 ? "\xCC\x80" : "\xCC\xA3";
  const std::string nfc = to_nfc(text);
  EXPECT_EQ(nfc.substr(0, 3), "\xE1\xBA\xB9") << "e with dot below";
}

TEST(ByteLevelTest, TurnsSpellingsIntoBytes) {
  std::string out;
  append_spelled_bytes(out, "\xC4\xA0the\xC4\x8A");  // U+0120, U+010A
  EXPECT_EQ(out, " the\n");
  out.clear();
  append_spelled_bytes(out,
                       "\xC5\x83\xC3\x83\xC2\xA9");  // U+0143 is the last of the 68: the soft hyphen's byte
  EXPECT_EQ(out, "\xAD\xC3\xA9");
  out.clear();
  append_spelled_bytes(out, "\xE6\x97\xA5");
  EXPECT_EQ(out, "\xE6\x97\xA5") << "outside the table: its own UTF-8";
}

std::vector<std::string> pieces(std::string_view pre, const std::string& text,
                                Pretokenizer::Engine engine = Pretokenizer::Engine::kJit) {
  std::vector<std::size_t> ends;
  Pretokenizer::create(pre, engine).value().split(text, ends);
  std::vector<std::string> out;
  std::size_t begin = 0;
  for (const std::size_t end : ends) {
    out.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  EXPECT_EQ(begin, text.size());
  return out;
}

using Pieces = std::vector<std::string>;

TEST(PretokenizerTest, SplitsWordsNumbersAndContractions) {
  EXPECT_EQ(pieces("qwen35", "I'LL don't 123 x_y!!\n\nz"),
            (Pieces{"I", "'LL", " don", "'t", " ", "1", "2", "3", " x", "_y", "!!\n\n", "z"}));
}

TEST(PretokenizerTest, SplitsWhiteSpaceRuns) {
  EXPECT_EQ(pieces("qwen35", "a   b \n  c  "), (Pieces{"a", "  ", " b", " \n", " ", " c", "  "}));
  EXPECT_EQ(pieces("qwen35", "a\xC2\xA0\xE3\x80\x80\xE3\x80\x80!"),
            (Pieces{"a", "\xC2\xA0\xE3\x80\x80", "\xE3\x80\x80", "!"}));
}

TEST(PretokenizerTest, TakesMarksIntoWordsOnlyInTheNewerForm) {
  EXPECT_EQ(pieces("qwen35", "a\xCC\x81z"), (Pieces{"a\xCC\x81z"}));
  EXPECT_EQ(pieces("qwen2", "a\xCC\x81z"), (Pieces{"a", "\xCC\x81z"}));
}

TEST(PretokenizerTest, DoesNotCountTheMongolianVowelSeparatorAsWhiteSpace) {
  EXPECT_EQ(pieces("qwen35", " \xE1\xA0\x8E!"), (Pieces{" \xE1\xA0\x8E!"}));
}

TEST(PretokenizerTest, RefusesUnknownNames) {
  const auto result = Pretokenizer::create("llama-bpe");
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(result.error().message(), testing::HasSubstr("llama-bpe"));
}

TEST(PretokenizerTest, InterpreterAndMachineCodeAgree) {
  for (uint32_t seed = 0; seed < 100; ++seed) {
    const std::string text = random_unicode(seed, 200);
    for (const char* pre : {"qwen35", "qwen2"}) {
      ASSERT_EQ(pieces(pre, text, Pretokenizer::Engine::kInterpreter), pieces(pre, text)) << "seed " << seed;
    }
  }
}

TEST(PretokenizerTest, TakesLongRunsInEitherEngine) {
  for (const auto engine : {Pretokenizer::Engine::kInterpreter, Pretokenizer::Engine::kJit}) {
    for (const std::string unit : {"a", " ", "!", "\n", "\xE3\x80\x80", "\xE6\x97\xA5"}) {
      std::string text;
      for (int i = 0; i < 200'000; ++i) text += unit;
      EXPECT_EQ(pieces("qwen35", text, engine), Pieces{text});
    }
  }
}

}  // namespace
}  // namespace strata::tokenizer
