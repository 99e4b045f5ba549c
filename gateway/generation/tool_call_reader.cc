#include "gateway/generation/tool_call_reader.h"

#include <algorithm>
#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/string.hpp>
#include <optional>

#include "gateway/api/json_text.h"

namespace strata::gateway {

namespace {

constexpr std::string_view kSpace = " \t\r\n";
constexpr std::size_t kNameBytesMax = 128;
// A header that is longer is none.
constexpr std::size_t kHeaderBytesMax = 1024;

boost::json::parse_options limited_depth() {
  boost::json::parse_options options;
  options.max_depth = kJsonDepthMax;
  return options;
}

bool good_name(std::string_view name) { return !name.empty() && name.size() <= kNameBytesMax; }

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

// Walks over {"name": "NAME", "arguments": and remembers how it ended: at something else, or because the text
// did.
class HeaderCursor {
 public:
  explicit HeaderCursor(std::string_view text) : text_(text) {}

  // White space and the literal.
  bool take(std::string_view literal) {
    skip_space();
    const std::string_view here = text_.substr(at_, literal.size());
    if (here == literal) {
      at_ += literal.size();
      return true;
    }
    incomplete_ = literal.starts_with(here);
    return false;
  }
  // White space and a JSON string, with its quotes.
  std::optional<std::string_view> take_string() {
    skip_space();
    const std::size_t begin = at_;
    if (!take("\"")) return {};
    for (; at_ < text_.size(); ++at_) {
      if (text_[at_] == '\\') {
        ++at_;
      } else if (text_[at_] == '"') {
        return text_.substr(begin, ++at_ - begin);
      }
    }
    incomplete_ = true;
    return {};
  }
  std::size_t at() const { return at_; }
  bool incomplete() const { return incomplete_; }

 private:
  void skip_space() { at_ = std::min(text_.find_first_not_of(kSpace, at_), text_.size()); }

  std::string_view text_;
  std::size_t at_ = 0;
  bool incomplete_ = false;
};

std::optional<std::string> string_value(std::string_view literal) {
  boost::system::error_code error;
  const boost::json::value value = boost::json::parse(literal, error);
  if (error || !value.is_string()) return {};
  return std::string(value.get_string());
}

struct WholeCall {
  std::string name = {};
  std::string arguments = {};  // JSON text
};

std::optional<WholeCall> parse_json_call(std::string_view text) {
  boost::system::error_code error;
  const boost::json::value value = boost::json::parse(text, error, {}, limited_depth());
  if (error || !value.is_object()) return {};
  const boost::json::object& call = value.get_object();
  const boost::json::value* name = call.if_contains("name");
  const boost::json::value* arguments = call.if_contains("arguments");
  if (name == nullptr || !name->is_string() || (arguments != nullptr && !arguments->is_object())) return {};
  return WholeCall{.name = std::string(name->get_string()),
                   .arguments = arguments == nullptr ? "{}" : to_json(*arguments)};
}

// The value of an argument that is not declared a string: JSON where it is some, else the text.
boost::json::value argument_value(std::string_view text) {
  boost::system::error_code error;
  boost::json::value value = boost::json::parse(text, error, {}, limited_depth());
  return error ? boost::json::value(text) : std::move(value);
}

std::optional<WholeCall> parse_parameters_call(std::string_view text, const StringParameters& strings) {
  constexpr std::string_view kFunction = "<function=", kFunctionEnd = "</function>";
  constexpr std::string_view kParameter = "<parameter=", kParameterEnd = "</parameter>";
  if (!text.starts_with(kFunction) || !text.ends_with(kFunctionEnd)) return {};
  text.remove_prefix(kFunction.size());
  text.remove_suffix(kFunctionEnd.size());
  const std::size_t name_end = text.find('>');
  if (name_end == std::string_view::npos) return {};
  WholeCall call{.name = std::string(text.substr(0, name_end))};
  boost::json::object arguments;
  text = trimmed(text.substr(name_end + 1));
  while (!text.empty()) {
    const std::size_t key_end = text.find('>');
    if (!text.starts_with(kParameter) || key_end == std::string_view::npos) return {};
    const std::string_view key = text.substr(kParameter.size(), key_end - kParameter.size());
    const std::size_t end = text.find(kParameterEnd, key_end);
    if (key.empty() || end == std::string_view::npos) return {};
    std::string_view value = text.substr(key_end + 1, end - key_end - 1);
    // One line break at either end belongs to the marks.
    if (value.starts_with('\n')) value.remove_prefix(1);
    if (value.ends_with('\n')) value.remove_suffix(1);
    const bool is_string = strings.contains({call.name, std::string(key)});
    arguments[key] = is_string ? boost::json::value(value) : argument_value(value);
    text = trimmed(text.substr(end + kParameterEnd.size()));
  }
  call.arguments = to_json(arguments);
  return call;
}

}  // namespace

ToolCallReader::ToolCallReader(uint32_t call, const StringParameters& strings)
    : call_(call), strings_(&strings), arguments_({}, limited_depth()) {}

void ToolCallReader::push(std::string_view text, std::vector<AnswerPiece>& out) {
  text_ += text;
  if (state_ == State::kHeader) read_header(out);
  if (state_ == State::kArguments) read_arguments(out);
}

void ToolCallReader::read_header(std::vector<AnswerPiece>& out) {
  HeaderCursor cursor(text_);
  std::optional<std::string_view> name;
  const bool read = cursor.take("{") && cursor.take("\"name\"") && cursor.take(":") &&
                    (name = cursor.take_string()) && cursor.take(",") && cursor.take("\"arguments\"") &&
                    cursor.take(":") && cursor.take("{");
  if (!read) {
    if (!cursor.incomplete() || text_.size() > kHeaderBytesMax) state_ = State::kWhole;
    return;
  }
  std::optional<std::string> value = string_value(*name);
  if (!value || !good_name(*value)) {
    state_ = State::kWhole;
    return;
  }
  tell(AnswerPiece::Kind::kCallBegin, std::move(*value), out);
  told_ = cursor.at() - 1;  // the bracket is the arguments' first byte
  state_ = State::kArguments;
}

void ToolCallReader::read_arguments(std::vector<AnswerPiece>& out) {
  const std::size_t begin = told_;
  while (told_ < text_.size() && state_ == State::kArguments) {
    boost::system::error_code error;
    arguments_.write_some(text_.data() + told_, 1, error);
    if (error) {
      state_ = State::kBroken;
      break;
    }
    ++told_;
    if (arguments_.done()) state_ = State::kTail;
  }
  if (told_ > begin) tell(AnswerPiece::Kind::kCallArguments, text_.substr(begin, told_ - begin), out);
}

bool ToolCallReader::close(std::vector<AnswerPiece>& out) {
  if (state_ == State::kTail) {
    const std::string_view tail = trimmed(untold());
    // A closing bracket too few harms nobody: name and arguments are complete.
    if (tail.empty() || tail == "}") told_ = text_.size();
    tell(AnswerPiece::Kind::kCallEnd, {}, out);
    return true;
  }
  return state_ == State::kWhole && close_whole(out);
}

bool ToolCallReader::close_whole(std::vector<AnswerPiece>& out) {
  const std::string_view text = trimmed(text_);
  std::optional<WholeCall> call =
      text.starts_with('{') ? parse_json_call(text) : parse_parameters_call(text, *strings_);
  if (!call || !good_name(call->name)) return false;
  tell(AnswerPiece::Kind::kCallBegin, std::move(call->name), out);
  tell(AnswerPiece::Kind::kCallArguments, std::move(call->arguments), out);
  tell(AnswerPiece::Kind::kCallEnd, {}, out);
  told_ = text_.size();
  return true;
}

void ToolCallReader::tell(AnswerPiece::Kind kind, std::string text, std::vector<AnswerPiece>& out) {
  shown_ = true;
  out.push_back({.kind = kind, .text = std::move(text), .call = call_});
}

}  // namespace strata::gateway
