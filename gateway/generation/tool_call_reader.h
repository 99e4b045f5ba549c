#pragma once
// One call as models write it between the marks <tool_call> and </tool_call>, told as it comes. Two forms are
// known, those of services/grammar/tool_calls.h:
//
//   {"name": "NAME", "arguments": {...}}
//   <function=NAME> <parameter=KEY> VALUE </parameter> ... </function>
//
// The first is told byte by byte: nothing before the name and the beginning of the arguments are read, then
// the arguments' own text as far as it is a valid beginning of JSON. Everything else (other orders of the
// members, the second form) is told when the call is complete.

#include <boost/json/stream_parser.hpp>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gateway/generation/answer_piece.h"

namespace strata::gateway {

inline constexpr std::string_view kCallOpen = "<tool_call>";
inline constexpr std::string_view kCallClose = "</tool_call>";

// Function and parameter, where the tool's schema says that the value is a string. The second form writes
// values without quotes: only the schema can tell 12345 and "12345" apart, or a file's text that is JSON.
using StringParameters = std::set<std::pair<std::string, std::string>>;

class ToolCallReader {
 public:
  // call: its number in the answer. strings must outlive the reader.
  ToolCallReader(uint32_t call, const StringParameters& strings);

  // Text between the marks, whole characters.
  void push(std::string_view text, std::vector<AnswerPiece>& out);
  // Everything between the marks has been pushed. True: it was a call, and its end has been told.
  bool close(std::vector<AnswerPiece>& out);

  bool shown() const { return shown_; }                              // its beginning has been told
  std::string_view told() const { return text().substr(0, told_); }  // what of the text has been
  std::string_view untold() const { return text().substr(told_); }

 private:
  enum class State { kHeader, kArguments, kTail, kWhole, kBroken };

  std::string_view text() const { return text_; }
  void read_header(std::vector<AnswerPiece>& out);
  void read_arguments(std::vector<AnswerPiece>& out);
  bool close_whole(std::vector<AnswerPiece>& out);
  void tell(AnswerPiece::Kind kind, std::string text, std::vector<AnswerPiece>& out);

  uint32_t call_;
  const StringParameters* strings_;
  State state_ = State::kHeader;
  std::string text_;
  std::size_t told_ = 0;
  bool shown_ = false;
  boost::json::stream_parser arguments_;  // only asked whether the text is JSON so far
};

}  // namespace strata::gateway
