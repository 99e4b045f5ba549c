#include "gateway/conversations/prompt_landmarks.h"

#include <algorithm>
#include <string_view>

#include "gateway/conversations/special_places.h"

namespace strata::gateway {

namespace {

using tokenizer::MarkedText;

// What templates write between the special token that opens a message and the message: "user\n",
// "assistant\n<think>\n\n</think>\n\n". A special token further away opened something else.
constexpr std::size_t kHeaderBytesMax = 64;

struct Landmark {
  uint32_t position = 0;
  int32_t opener = -1;  // the special token behind it
};

class Finder {
 public:
  Finder(const tokenizer::Tokenizer& tokenizer, const MarkedText& text, std::span<const int32_t> tokens)
      : tokenizer_(tokenizer),
        text_(text),
        tokens_(tokens),
        specials_(special_places(tokenizer, text, tokens)) {}

  // The place of the message with which `other` begins to differ from the prompt.
  Landmark where_differs(const MarkedText& other) const {
    const auto differs = std::ranges::mismatch(text_.text(), other.text()).in1;
    const auto byte = static_cast<std::size_t>(differs - text_.text().begin());
    // A special token that begins exactly there is not common: it ends an empty message, or opens another.
    const auto behind = std::ranges::lower_bound(specials_, byte, {}, &SpecialPlace::begin);
    if (behind == specials_.begin()) return {.position = tokens_up_to(0, 0, byte)};
    const SpecialPlace& special = *std::prev(behind);
    if (byte <= special.end + kHeaderBytesMax) {
      return {.position = special.token, .opener = tokens_[special.token]};
    }
    return {.position = tokens_up_to(special.token + 1, special.end, byte)};
  }

  std::vector<uint32_t> all_of(int32_t opener) const {
    std::vector<uint32_t> positions;
    for (const SpecialPlace& special : specials_) {
      if (special.token > 0 && tokens_[special.token] == opener) positions.push_back(special.token);
    }
    return positions;
  }

 private:
  // The tokens that do not depend on what follows the byte `end`; token `first` begins at byte `begin`.
  uint32_t tokens_up_to(uint32_t first, std::size_t begin, std::size_t end) const {
    const std::vector<int32_t> cut = tokenizer_.encode(text_.slice(begin, end));
    const auto same = std::ranges::mismatch(cut, tokens_.subspan(first)).in1;
    return first + static_cast<uint32_t>(same - cut.begin());
  }

  const tokenizer::Tokenizer& tokenizer_;
  const MarkedText& text_;
  std::span<const int32_t> tokens_;
  std::vector<SpecialPlace> specials_;
};

std::string_view text_member(const boost::json::value& message, std::string_view name) {
  const boost::json::value* member = message.get_object().if_contains(name);
  return member != nullptr && member->is_string() ? std::string_view(member->get_string()) : "";
}

bool has_role(const boost::json::value& message, std::string_view role) {
  return text_member(message, "role") == role;
}

// The first `count` messages and one of the user that has nothing in common with what stood there.
boost::json::array continued_otherwise(const boost::json::array& messages, std::size_t count) {
  boost::json::array other(messages.begin(), messages.begin() + static_cast<std::ptrdiff_t>(count));
  const std::string_view replaced =
      count < messages.size() ? text_member(messages[count], "content") : std::string_view();
  const std::size_t first = replaced.find_first_not_of(" \t\r\n");
  const bool taken = first != std::string_view::npos && replaced[first] == 'A';
  other.push_back({{"role", "user"}, {"content", taken ? "B" : "A"}});
  return other;
}

}  // namespace

PromptLandmarks prompt_landmarks(const tokenizer::Tokenizer& tokenizer, const boost::json::array& messages,
                                 const MarkedText& text, std::span<const int32_t> tokens,
                                 const RenderMessages& render) {
  const Finder finder(tokenizer, text, tokens);
  const auto before_message = [&](std::size_t count) {
    const auto other = render(continued_otherwise(messages, count));
    return other ? finder.where_differs(*other) : Landmark();
  };
  const auto is_system = [](const auto& message) { return has_role(message, "system"); };
  const auto is_user = [](const auto& message) { return has_role(message, "user"); };
  const auto first_turn = static_cast<std::size_t>(
      std::find_if_not(messages.begin(), messages.end(), is_system) - messages.begin());
  const auto behind_last_user =
      static_cast<std::size_t>(messages.rend() - std::find_if(messages.rbegin(), messages.rend(), is_user));

  const Landmark root = before_message(first_turn);
  Landmark last_user;
  if (behind_last_user > 0) {
    last_user = behind_last_user - 1 == first_turn ? root : before_message(behind_last_user - 1);
  }
  return {.system_end = root.position,
          .last_user = last_user.position,
          .turns = finder.all_of(last_user.opener >= 0 ? last_user.opener : root.opener)};
}

}  // namespace strata::gateway
