// The response object and its events (api-cases 27 to 30).

#include "gateway/generation/responses_format.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>

#include "gateway/api/json_text.h"

namespace strata::gateway {
namespace {

using Kind = AnswerPiece::Kind;
using Fault = AnswerPiece::Fault;

const AnswerIdentity kIdentity{
    .id = "resp_7", .request_id = "7", .created = 1, .model = "demo", .fingerprint = "fp"};
const Usage kUsage{.prompt_tokens = 100, .completion_tokens = 9, .cached_tokens = 60, .reasoning_tokens = 4};
const ClientTools kTools{{"space__f", {.name = "f", .name_space = "space"}},
                         {"shout", {.name = "shout", .free_form = true}}};

AnswerPiece reasoning(const char* text) { return {.kind = Kind::kReasoning, .text = text}; }
AnswerPiece content(const char* text) { return {.kind = Kind::kContent, .text = text}; }
AnswerPiece begin(const char* name, uint32_t call) {
  return {.kind = Kind::kCallBegin, .text = name, .call = call};
}
AnswerPiece arguments(const char* text, uint32_t call) {
  return {.kind = Kind::kCallArguments, .text = text, .call = call};
}
AnswerPiece end(uint32_t call, std::optional<Fault> fault = {}) {
  return {.kind = Kind::kCallEnd, .call = call, .fault = fault};
}

// The events of a stream, each checked: its name is its type, the data is one line, the numbers rise by one.
class Events {
 public:
  void read(const std::string& stream) {
    for (std::size_t at = 0; at < stream.size();) {
      const std::size_t end = stream.find("\n\n", at), line = stream.find('\n', at);
      ASSERT_EQ(stream.substr(line + 1, 6), "data: ");
      list.push_back(boost::json::parse(stream.substr(line + 7, end - line - 7)).get_object());
      EXPECT_EQ(stream.substr(at, line - at), "event: " + std::string(list.back().at("type").as_string()));
      EXPECT_EQ(list.back().at("sequence_number").to_number<std::size_t>(), list.size() - 1);
      at = end + 2;
    }
  }
  // Without the response objects and the numbers.
  std::string text(std::size_t from = 0) const {
    std::string out;
    for (std::size_t i = from; i < list.size(); ++i) {
      boost::json::object event;
      for (const auto& member : list[i]) {
        if (member.key() != "sequence_number" && member.key() != "response") event.insert(member);
      }
      out += to_json(event) + "\n";
    }
    return out;
  }
  const boost::json::object& response() const { return list.back().at("response").get_object(); }

  std::vector<boost::json::object> list;
};

std::unique_ptr<AnswerFormat> make(ResponsesOptions options = {.tools = kTools}) {
  options.echo["store"] = true;
  return make_responses_format(kIdentity, std::move(options));
}

Events streamed(AnswerFormat& format, const std::vector<AnswerPiece>& pieces, const Finish& finish) {
  Events events;
  events.read(format.begin_stream({.prompt_tokens = 100}));
  events.read(format.begin_choice(0));
  for (const AnswerPiece& piece : pieces) events.read(format.piece(0, piece));
  events.read(format.finish_choice(0, finish));
  events.read(format.end_stream(kUsage));
  return events;
}

TEST(ResponsesFormatTest, Case28EventsComeInOrderItemByItem) {
  auto format = make();
  const Events events =
      streamed(*format,
               {reasoning("Hm"), reasoning("m."), content(""), content("I "), content("look."),
                begin("space__f", 0), arguments("{\"a\":", 0), arguments(" 1}", 0), end(0)},
               {.reason = Finish::Reason::kToolCalls});
  EXPECT_EQ(
      events.text(),
      R"({"type":"response.created"}
{"type":"response.in_progress"}
{"type":"response.output_item.added","output_index":0,)"
      R"("item":{"id":"rs_7_0","type":"reasoning","summary":[],"content":[],"status":"in_progress"}}
{"type":"response.content_part.added","item_id":"rs_7_0","output_index":0,"content_index":0,)"
      R"("part":{"type":"reasoning_text","text":""}}
{"type":"response.reasoning_text.delta","item_id":"rs_7_0","output_index":0,"content_index":0,"delta":"Hm"}
{"type":"response.reasoning_text.delta","item_id":"rs_7_0","output_index":0,"content_index":0,"delta":"m."}
{"type":"response.reasoning_text.done","item_id":"rs_7_0","output_index":0,"content_index":0,"text":"Hmm."}
{"type":"response.content_part.done","item_id":"rs_7_0","output_index":0,"content_index":0,)"
      R"("part":{"type":"reasoning_text","text":"Hmm."}}
{"type":"response.output_item.done","output_index":0,)"
      R"("item":{"id":"rs_7_0","type":"reasoning","summary":[],)"
      R"("content":[{"type":"reasoning_text","text":"Hmm."}],"status":"completed"}}
{"type":"response.output_item.added","output_index":1,)"
      R"("item":{"id":"msg_7_1","type":"message","role":"assistant","content":[],"status":"in_progress"}}
{"type":"response.content_part.added","item_id":"msg_7_1","output_index":1,"content_index":0,)"
      R"("part":{"type":"output_text","text":"","annotations":[],"logprobs":[]}}
{"type":"response.output_text.delta","item_id":"msg_7_1","output_index":1,"content_index":0,"delta":"I ","logprobs":[]}
{"type":"response.output_text.delta","item_id":"msg_7_1","output_index":1,"content_index":0,"delta":"look.","logprobs":[]}
{"type":"response.output_text.done","item_id":"msg_7_1","output_index":1,"content_index":0,"text":"I look.","logprobs":[]}
{"type":"response.content_part.done","item_id":"msg_7_1","output_index":1,"content_index":0,)"
      R"("part":{"type":"output_text","text":"I look.","annotations":[],"logprobs":[]}}
{"type":"response.output_item.done","output_index":1,)"
      R"("item":{"id":"msg_7_1","type":"message","role":"assistant",)"
      R"("content":[{"type":"output_text","text":"I look.","annotations":[],"logprobs":[]}],"status":"completed"}}
{"type":"response.output_item.added","output_index":2,)"
      R"("item":{"id":"fc_7_2","type":"function_call","call_id":"call_7_0",)"
      R"("name":"f","namespace":"space","arguments":"","status":"in_progress"}}
{"type":"response.function_call_arguments.delta","item_id":"fc_7_2","output_index":2,"delta":"{\"a\":"}
{"type":"response.function_call_arguments.delta","item_id":"fc_7_2","output_index":2,"delta":" 1}"}
{"type":"response.function_call_arguments.done","item_id":"fc_7_2","output_index":2,)"
      R"("name":"f","arguments":"{\"a\": 1}"}
{"type":"response.output_item.done","output_index":2,)"
      R"("item":{"id":"fc_7_2","type":"function_call","call_id":"call_7_0",)"
      R"("name":"f","namespace":"space","arguments":"{\"a\": 1}","status":"completed"}}
{"type":"response.completed"}
)");
  EXPECT_EQ(to_json(events.response().at("usage")),
            R"({"input_tokens":100,"input_tokens_details":{"cached_tokens":60},"output_tokens":9,)"
            R"("output_tokens_details":{"reasoning_tokens":4},"total_tokens":109})");
  EXPECT_EQ(events.response().at("timings").at("prompt_n"), 40);
  EXPECT_EQ(events.response().at("timings").at("predicted_n"), 9);
  EXPECT_EQ(events.list[0].at("response").at("status"), "in_progress");
  EXPECT_FALSE(events.list[0].at("response").as_object().contains("timings"));
  EXPECT_TRUE(events.list[1].at("response").at("usage").is_null());
}

TEST(ResponsesFormatTest, Case27TheWholeResponseIsWhatTheStreamEndsWith) {
  auto format = make();
  const std::vector<AnswerPiece> pieces{reasoning("Hm."),
                                        content("I look."),
                                        begin("space__f", 0),
                                        arguments("{\"a\": 1}", 0),
                                        end(0),
                                        begin("shout", 1),
                                        arguments("{\"input\": \"HEY\"}", 1),
                                        end(1)};
  const Finish finish{.reason = Finish::Reason::kToolCalls};
  const Events events = streamed(*format, pieces, finish);
  Choice choice{.finish = finish};
  for (const AnswerPiece& piece : pieces) choice.add(piece);
  auto whole = make();
  EXPECT_EQ(whole->whole({choice}, kUsage), to_json(events.response()));
  EXPECT_EQ(whole->record({choice}, kUsage), to_json(events.response()));
  EXPECT_EQ(format->record({}, kUsage), to_json(events.response()));
}

TEST(ResponsesFormatTest, Case29FreeFormCallsAreTexts) {
  auto format = make();
  const Events events =
      streamed(*format, {begin("shout", 0), arguments("{\"input\": ", 0), arguments("\"A\\nB\"}", 0), end(0)},
               {.reason = Finish::Reason::kToolCalls});
  EXPECT_EQ(events.text(2), R"({"type":"response.output_item.added","output_index":0,)"
                            R"("item":{"id":"ctc_7_0","type":"custom_tool_call","call_id":"call_7_0",)"
                            R"("name":"shout","input":"","status":"in_progress"}}
{"type":"response.custom_tool_call_input.delta","item_id":"ctc_7_0","output_index":0,"delta":"A\nB"}
{"type":"response.custom_tool_call_input.done","item_id":"ctc_7_0","output_index":0,"input":"A\nB"}
{"type":"response.output_item.done","output_index":0,)"
                            R"("item":{"id":"ctc_7_0","type":"custom_tool_call","call_id":"call_7_0",)"
                            R"("name":"shout","input":"A\nB","status":"completed"}}
{"type":"response.completed"}
)");
  // Arguments that are none are shown as they are, and a text may be empty.
  for (const auto& [given, shown] :
       std::vector<std::pair<const char*, const char*>>{{R"({"text": "A"})", R"({"text": "A"})"},
                                                        {R"({"input": ""})", ""},
                                                        {R"({"input": 7})", R"({"input": 7})"}}) {
    auto other = make();
    const Events told = streamed(*other, {begin("shout", 0), arguments(given, 0), end(0)}, {});
    EXPECT_EQ(told.response().at("output").at(0).at("input"), shown);
  }
}

TEST(ResponsesFormatTest, ACallOfWhatWasNotOfferedKeepsItsName) {
  auto format = make();
  const Events events = streamed(*format, {begin("other", 0), arguments("{}", 0), end(0)}, {});
  EXPECT_EQ(events.response().at("output").at(0).at("name"), "other");
  EXPECT_EQ(events.response().at("output").at(0).at("type"), "function_call");
}

TEST(ResponsesFormatTest, Case30TheCapMakesItIncomplete) {
  const Finish finish{.reason = Finish::Reason::kLength};
  auto format = make();
  const Events events = streamed(*format, {content("On")}, finish);
  EXPECT_EQ(events.list.back().at("type"), "response.incomplete");
  EXPECT_EQ(to_json(events.response().at("incomplete_details")), R"({"reason":"max_output_tokens"})");
  EXPECT_EQ(events.response().at("status"), "incomplete");
  EXPECT_EQ(events.response().at("output").at(0).at("status"), "incomplete");
  Choice choice{.blocks = {{.kind = Kind::kContent, .text = "On"}}, .finish = finish};
  EXPECT_EQ(make()->whole({choice}, kUsage), to_json(events.response()));

  // Inside the thinking, and before anything was said.
  auto thinking = make();
  EXPECT_EQ(streamed(*thinking, {reasoning("Hm")}, finish).response().at("output").as_array().size(), 1u);
  auto nothing = make();
  EXPECT_TRUE(streamed(*nothing, {}, finish).response().at("output").as_array().empty());
}

TEST(ResponsesFormatTest, ACallThatTheCapCutIsMarked) {
  auto format = make();
  const Events events = streamed(*format, {begin("space__f", 0), arguments("{\"a", 0), end(0, Fault::kCut)},
                                 {.reason = Finish::Reason::kLength});
  EXPECT_EQ(events.response().at("output").at(0).at("status"), "incomplete");
  EXPECT_EQ(events.response().at("output").at(0).at("arguments"), "{\"a");
}

TEST(ResponsesFormatTest, ACompleteAnswerEndsWithSomething) {
  for (const std::vector<AnswerPiece>& pieces : {std::vector<AnswerPiece>{}, {reasoning("Hm.")}}) {
    auto format = make();
    const Finish finish{.detail = "ended_in_thinking"};
    const Events events = streamed(*format, pieces, finish);
    const auto& output = events.response().at("output").as_array();
    ASSERT_EQ(output.size(), pieces.size() + 1);
    EXPECT_EQ(output.back().at("type"), "message");
    EXPECT_EQ(events.response().at("finish_detail"), "ended_in_thinking");
    Choice choice{.finish = finish};
    for (const AnswerPiece& piece : pieces) choice.add(piece);
    EXPECT_EQ(make()->whole({choice}, kUsage), to_json(events.response()));
  }
}

TEST(ResponsesFormatTest, Case30AFailureClosesWhatWasBegun) {
  auto format = make();
  Events events;
  events.read(format->begin_stream({}));
  events.read(format->piece(0, content("Half")));
  events.read(format->fail_stream(
      {.status = 503, .message = "the engine is restarting", .code = "engine_unavailable"}));
  EXPECT_EQ(events.list[events.list.size() - 2].at("type"), "response.output_item.done");
  EXPECT_EQ(events.list.back().at("type"), "response.failed");
  EXPECT_EQ(events.response().at("status"), "failed");
  EXPECT_EQ(to_json(events.response().at("error")),
            R"({"code":"engine_unavailable","message":"the engine is restarting"})");
  EXPECT_EQ(events.response().at("output").at(0).at("status"), "incomplete");
  auto nameless = make();
  Events other;
  other.read(nameless->fail_stream({.status = 400, .message = "m"}));
  EXPECT_EQ(other.response().at("error").at("code"), "invalid_request_error");
}

TEST(ResponsesFormatTest, AResponseThatIsOverBeforeItsAnswerIsKeptAsItEnded) {
  const ApiError error{.status = 503, .message = "the engine is restarting", .code = "engine_unavailable"};
  auto failing = make();
  Events events;
  events.read(failing->begin_stream({}));
  events.read(failing->piece(0, content("Half")));
  events.read(failing->fail_stream(error));
  EXPECT_EQ(failing->record_unfinished(&error), to_json(events.response()));

  auto left = make();
  left->begin_stream({});
  left->piece(0, reasoning("Hm."));
  left->piece(0, content("Half"));
  const auto kept = boost::json::parse(left->record_unfinished(nullptr));
  EXPECT_EQ(kept.at("status"), "cancelled");
  EXPECT_TRUE(kept.at("error").is_null());
  EXPECT_EQ(kept.at("output").at(0).at("status"), "completed");
  EXPECT_EQ(kept.at("output").at(1).at("status"), "incomplete");
  EXPECT_EQ(kept.at("output").at(1).at("content").at(0).at("text"), "Half");
}

TEST(ResponsesFormatTest, Case28WaitingIsAnEvent) {
  auto format = make();
  Events events;
  events.read(format->begin_stream({}));
  events.read(format->queued(3));
  events.read(format->keep_alive());
  events.read(format->progress(0, {.total = 10, .cached = 2, .processed = 4}, 7));
  EXPECT_EQ(events.text(2), R"({"type":"response.in_progress"}
{"type":"response.in_progress"}
{"type":"response.in_progress","prompt_progress":{"total":10,"cached":2,"processed":4,"time_ms":7}}
)");
}

TEST(ResponsesFormatTest, ScoresStandWithTheirText) {
  AnswerPiece scored = content("Hi");
  scored.scores.push_back({.bytes = "Hi", .logprob = -0.5f});
  auto format = make({.scores = true});
  const Events events = streamed(*format, {scored}, {});
  const std::string expected = R"([{"token":"Hi","logprob":-0.5,"bytes":[72,105],"top_logprobs":[]}])";
  EXPECT_EQ(to_json(events.list[4].at("logprobs")), expected);
  EXPECT_EQ(to_json(events.response().at("output").at(0).at("content").at(0).at("logprobs")), expected);
  Choice choice{.blocks = {{.kind = Kind::kContent, .text = "Hi"}}, .scores = scored.scores};
  EXPECT_EQ(make({.scores = true})->whole({choice}, kUsage), to_json(events.response()));
}

TEST(ResponsesFormatTest, SealedReasoningIsThereOnlyWhenAskedFor) {
  auto format = make({.sealed_reasoning = true});
  const Events events = streamed(*format, {reasoning("Hm.")}, {});
  EXPECT_EQ(events.response().at("output").at(0).at("encrypted_content"), "strata-text:Hm.");
  EXPECT_TRUE(events.list[2].at("item").at("encrypted_content").is_null());
}

TEST(ResponsesFormatTest, WhatCouldNotBeStoredSaysSo) {
  auto format = make({.warnings = {"tools of the type \"web_search\" are not offered to the model"}});
  format->begin_stream({});
  format->not_kept();
  format->finish_choice(0, {});
  const std::string end = format->end_stream(kUsage);
  EXPECT_NE(end.find(R"("store":false)"), std::string::npos);
  EXPECT_NE(
      end.find(
          R"("warnings":["tools of the type \"web_search\" are not offered to the model","the response could not be stored"])"),
      std::string::npos)
      << end;
}

}  // namespace
}  // namespace strata::gateway
