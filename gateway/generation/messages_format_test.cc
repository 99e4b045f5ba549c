// Anthropic's message, whole and as events (api-cases 31 to 34).

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>

#include "gateway/api/json_text.h"
#include "gateway/generation/answer_format.h"

namespace strata::gateway {
namespace {

using Kind = AnswerPiece::Kind;

const AnswerIdentity kIdentity{
    .id = "msg_7", .request_id = "7", .created = 1, .model = "demo", .fingerprint = "fp"};
const Usage kUsage{.prompt_tokens = 100,
                   .completion_tokens = 9,
                   .cached_tokens = 60,
                   .cache_creation_tokens = 30,
                   .timings = {.queue = std::chrono::milliseconds(5),
                               .prompt = std::chrono::milliseconds(80),
                               .predicted = std::chrono::milliseconds(90)}};
const std::string kTimings =
    R"("timings":{"cache_n":60,"prompt_n":40,"prompt_ms":80,"prompt_per_token_ms":2,"prompt_per_second":500,)"
    R"("predicted_n":9,"predicted_ms":90,"predicted_per_token_ms":10,"predicted_per_second":100,"queue_ms":5}})";

// The events of a stream, each checked: its name is its type, the data is one line.
std::vector<boost::json::value> events(const std::string& stream) {
  std::vector<boost::json::value> out;
  for (std::size_t at = 0; at < stream.size();) {
    const std::size_t end = stream.find("\n\n", at), line = stream.find('\n', at);
    const std::string name = stream.substr(at, line - at);
    EXPECT_TRUE(name.starts_with("event: ")) << name;
    EXPECT_EQ(stream.substr(line + 1, 6), "data: ");
    out.push_back(boost::json::parse(stream.substr(line + 7, end - line - 7)));
    EXPECT_EQ(std::string(out.back().at("type").as_string()), name.substr(7));
    at = end + 2;
  }
  return out;
}

TEST(MessagesFormatTest, Case32EventsComeInOrderWithBlocksOneAfterAnother) {
  auto format = make_messages_format(kIdentity);
  std::string stream = format->begin_stream({.prompt_tokens = 100});
  stream += format->queued(2) + format->keep_alive() + format->begin_choice(0);
  for (const AnswerPiece& piece :
       {AnswerPiece{.kind = Kind::kReasoning, .text = "Hm"},
        AnswerPiece{.kind = Kind::kReasoning, .text = "m."}, AnswerPiece{.kind = Kind::kContent, .text = ""},
        AnswerPiece{.kind = Kind::kContent, .text = "I look."},
        AnswerPiece{.kind = Kind::kCallBegin, .text = "f", .call = 0},
        AnswerPiece{.kind = Kind::kCallArguments, .text = "{\"a\":", .call = 0},
        AnswerPiece{.kind = Kind::kCallArguments, .text = " 1}", .call = 0},
        AnswerPiece{.kind = Kind::kCallEnd, .call = 0},
        AnswerPiece{.kind = Kind::kCallBegin, .text = "g", .call = 1},
        AnswerPiece{.kind = Kind::kCallArguments, .text = "{}", .call = 1},
        AnswerPiece{.kind = Kind::kCallEnd, .call = 1}}) {
    stream += format->piece(0, piece);
  }
  stream += format->finish_choice(0, {.reason = Finish::Reason::kToolCalls});
  stream += format->end_stream(kUsage);
  std::string lines;
  for (const auto& event : events(stream)) lines += to_json(event) + "\n";
  EXPECT_EQ(
      lines,
      R"({"type":"message_start","message":{"id":"msg_7","type":"message","role":"assistant",)"
      R"("model":"demo","content":[],"stop_reason":null,"stop_sequence":null,)"
      R"("usage":{"input_tokens":100,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":0}}}
{"type":"ping"}
{"type":"ping"}
{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}
{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Hm"}}
{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"m."}}
{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"strata"}}
{"type":"content_block_stop","index":0}
{"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}
{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"I look."}}
{"type":"content_block_stop","index":1}
{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"toolu_7_0","name":"f","input":{}}}
{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"a\":"}}
{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":" 1}"}}
{"type":"content_block_stop","index":2}
{"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"toolu_7_1","name":"g","input":{}}}
{"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"{}"}}
{"type":"content_block_stop","index":3}
{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},)"
      R"("usage":{"input_tokens":10,"cache_creation_input_tokens":30,"cache_read_input_tokens":60,"output_tokens":9},)" +
          kTimings + R"(
{"type":"message_stop"}
)");
}

TEST(MessagesFormatTest, Case31TheWholeMessageHasTheSameBlocks) {
  auto format = make_messages_format(kIdentity);
  Choice choice{.blocks = {{.kind = Kind::kReasoning, .text = "Hm."},
                           {.kind = Kind::kContent, .text = "I look."},
                           {.kind = Kind::kCallBegin, .text = R"({"a": 1})", .name = "f"}}};
  EXPECT_EQ(
      format->whole({choice}, kUsage),
      R"({"id":"msg_7","type":"message","role":"assistant","model":"demo","content":[{"type":"thinking",)"
      R"("thinking":"Hm.","signature":"strata"},)"
      R"({"type":"text","text":"I look."},{"type":"tool_use","id":"toolu_7_0","name":"f",)"
      R"("input":{"a":1}}],"stop_reason":"end_turn",)"
      R"("stop_sequence":null,"usage":{"input_tokens":10,"cache_creation_input_tokens":30,)"
      R"("cache_read_input_tokens":60,"output_tokens":9},)" +
          kTimings);
}

TEST(MessagesFormatTest, Case34StopReasonsNameWhatEndedTheAnswer) {
  struct Named {
    Finish finish;
    const char* reason;
  };
  for (const Named& named : {Named{{}, "end_turn"}, Named{{.reason = Finish::Reason::kLength}, "max_tokens"},
                             Named{{.reason = Finish::Reason::kToolCalls}, "tool_use"}}) {
    auto format = make_messages_format(kIdentity);
    format->finish_choice(0, named.finish);
    auto delta = events(format->end_stream({})).front().at("delta");
    EXPECT_EQ(delta.at("stop_reason"), named.reason);
    EXPECT_TRUE(delta.at("stop_sequence").is_null());
    EXPECT_FALSE(delta.as_object().contains("finish_detail"));
  }
  auto format = make_messages_format(kIdentity);
  format->finish_choice(
      0, {.reason = Finish::Reason::kStopString, .stop_string = "###", .detail = "loop_guard"});
  EXPECT_EQ(to_json(events(format->end_stream({})).front().at("delta")),
            R"({"stop_reason":"stop_sequence","stop_sequence":"###","finish_detail":"loop_guard"})");
}

TEST(MessagesFormatTest, Case32AFaultAfterTheBeginIsOneEvent) {
  auto format = make_messages_format(kIdentity);
  EXPECT_EQ(format->fail_stream({.status = 503, .message = "the engine is restarting"}),
            "event: error\ndata: "
            "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"the engine "
            "is restarting\"}}\n\n");
}

}  // namespace
}  // namespace strata::gateway
