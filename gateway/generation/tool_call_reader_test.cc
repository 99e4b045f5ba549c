// What stands between the marks of a call, cut into pieces at every place.

#include "gateway/generation/tool_call_reader.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace strata::gateway {
namespace {

using Kind = AnswerPiece::Kind;

struct Told {
  bool call = false;
  std::string name = {}, arguments = {}, untold = {};
  std::size_t argument_pieces = 0;
  bool operator==(const Told& other) const {
    return call == other.call && name == other.name && arguments == other.arguments && untold == other.untold;
  }
};

const StringParameters kStrings = {{"write", "text"}};

Told read(const std::vector<std::string_view>& parts) {
  ToolCallReader reader(3, kStrings);
  std::vector<AnswerPiece> pieces;
  for (std::string_view part : parts) reader.push(part, pieces);
  Told told;
  told.call = reader.close(pieces);
  told.untold = reader.untold();
  bool begun = false, ended = false;
  for (const AnswerPiece& piece : pieces) {
    EXPECT_EQ(piece.call, 3u);
    EXPECT_FALSE(ended) << "something after the end";
    if (piece.kind == Kind::kCallBegin) {
      EXPECT_FALSE(begun) << "begun twice";
      begun = true;
      told.name = piece.text;
    } else if (piece.kind == Kind::kCallArguments) {
      EXPECT_TRUE(begun && !piece.text.empty());
      told.arguments += piece.text;
      ++told.argument_pieces;
    } else {
      ended = true;
    }
  }
  EXPECT_EQ(ended, told.call);
  EXPECT_EQ(reader.shown(), begun);
  return told;
}

std::vector<std::string_view> bytes_of(std::string_view text) {
  std::vector<std::string_view> out;
  for (std::size_t i = 0; i < text.size(); ++i) out.push_back(text.substr(i, 1));
  return out;
}

// The same whole, byte by byte, and in two parts cut at every place.
Told read_every_way(std::string_view text) {
  const Told whole = read({text});
  EXPECT_EQ(read(bytes_of(text)), whole) << text;
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    EXPECT_EQ(read({text.substr(0, cut), text.substr(cut)}), whole) << text << " cut at " << cut;
  }
  return whole;
}

TEST(ToolCallReaderTest, TellsNameAndTheArgumentsOwnText) {
  const std::string_view arguments = R"({"city": "Paris \"}{", "days": [1, {"a": -2.5e3}], "x": null})";
  for (const char* form : {"\n{{\"name\": \"get_weather\", \"arguments\": {}}}\n",
                           "{{\"name\":\"get_weather\",\"arguments\":{}}}",
                           " {{ \"name\" : \"get_w\\u0065ather\" ,\n \"arguments\" : {} }} \n",
                           "\n{{\"name\": \"get_weather\", \"arguments\": {}\n"}) {
    const Told told = read_every_way(fmt::format(fmt::runtime(form), arguments));
    EXPECT_TRUE(told.call) << form;
    EXPECT_EQ(told.name, "get_weather");
    EXPECT_EQ(told.arguments, arguments);
    EXPECT_EQ(told.untold, "");
  }
}

TEST(ToolCallReaderTest, Case14ArgumentsAreToldWhileTheyCome) {
  const std::string_view text = "\n{\"name\": \"f\", \"arguments\": {\"a\": \"long text\"}}\n";
  EXPECT_GT(read(bytes_of(text)).argument_pieces, 10u);
  ToolCallReader reader(0, kStrings);
  std::vector<AnswerPiece> pieces;
  reader.push("{\"name\": \"f\", \"arguments\":", pieces);
  EXPECT_TRUE(pieces.empty()) << "told before it was sure that the arguments are an object";
  reader.push(" {\"a\": \"lon", pieces);
  ASSERT_EQ(pieces.size(), 2u);
  EXPECT_EQ(pieces[1].text, "{\"a\": \"lon");
}

TEST(ToolCallReaderTest, OtherOrdersAndMissingArgumentsAreToldAtTheEnd) {
  EXPECT_EQ(read_every_way(R"({"arguments": {"a": 1}, "name": "f"})").arguments, R"({"a":1})");
  EXPECT_EQ(read_every_way(R"({"name": "f"})").arguments, "{}");
  EXPECT_EQ(read_every_way(R"({"id": 7, "name": "f", "arguments": {}})").name, "f");
}

TEST(ToolCallReaderTest, WhatIsNoCallIsNotTold) {
  for (const char* text :
       {"", "\n", "hello", "{", "[1]", R"({"name": "f", "arguments": "text"})",
        R"({"name": "f", "arguments": [1]})", R"({"name": "", "arguments": {}})",
        R"({"name": 7, "arguments": {}})", R"({"arguments": {}})", R"({"name": "f", "arguments")",
        R"({"name": "f)", R"({"name": "f\)", R"({"name": "\q", "arguments": {}})", "<function=>\n</function>",
        "<function=f>\n<parameter=a>\n1\n</function>", "<function=f>\ntext\n</function>",
        "<function=f>\n<parameter=>1</parameter>\n</function>", "<function=f"}) {
    const Told told = read_every_way(text);
    EXPECT_FALSE(told.call) << text;
    EXPECT_EQ(told.name, "") << text;
    EXPECT_EQ(told.untold, text) << "lost";
  }
  const std::string endless = R"({"name": ")" + std::string(5000, 'x');
  EXPECT_EQ(read({endless, endless}).untold, endless + endless);
  const std::string deep = R"({"name": "f", "arguments": )" + std::string(5000, '[') + "}";
  EXPECT_FALSE(read({deep}).call);
}

TEST(ToolCallReaderTest, ArgumentsThatStopBeingJsonAreToldUpToThere) {
  const Told broken = read_every_way(R"({"name": "f", "arguments": {"a": "say "hi" to", "b": 1}})");
  EXPECT_FALSE(broken.call);
  EXPECT_EQ(broken.arguments, R"({"a": "say ")");
  EXPECT_EQ(broken.untold, R"(hi" to", "b": 1}})");
  const Told line_break = read_every_way("{\"name\": \"f\", \"arguments\": {\"a\": \"x\ny\"}}");
  EXPECT_FALSE(line_break.call);
  EXPECT_EQ(line_break.untold, "\ny\"}}");
  EXPECT_FALSE(read_every_way(R"({"name": "f", "arguments": {"a": )").call);
  const std::string deep = R"({"name": "f", "arguments": {"a": )" + std::string(5000, '[');
  EXPECT_FALSE(read({deep}).call);
}

TEST(ToolCallReaderTest, WhatFollowsCompleteArgumentsIsLeftOver) {
  const Told told = read_every_way(R"({"name": "f", "arguments": {}}, and more)");
  EXPECT_TRUE(told.call);
  EXPECT_EQ(told.arguments, "{}");
  EXPECT_EQ(told.untold, "}, and more");
}

TEST(ToolCallReaderTest, TheFormWithParametersBecomesJsonAndStringsStayStrings) {
  const Told told = read_every_way(
      "\n<function=write>\n<parameter=text>\n{\"a\": "
      "1}\n\n</parameter>\n<parameter=lines>\n12\n</parameter>\n"
      "<parameter=note>\nnot JSON\n</parameter>\n</function>\n");
  EXPECT_TRUE(told.call);
  EXPECT_EQ(told.name, "write");
  EXPECT_EQ(told.arguments, R"({"text":"{\"a\": 1}\n","lines":12,"note":"not JSON"})");
  EXPECT_EQ(read_every_way("<function=now></function>").arguments, "{}");
}

}  // namespace
}  // namespace strata::gateway
