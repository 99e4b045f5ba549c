#include "services/residency/trace.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <fstream>
#include <iterator>

#include "services/base/limits.h"
#include "services/residency/replace_file.h"

namespace strata::residency {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are read as they lie in the file");

constexpr std::string_view kMagic = "STRTRC01";
constexpr uint32_t kConversationsMax = 1 << 20;
constexpr uint32_t kTokensMax = 1 << 24;

std::size_t pick_bytes(const RoutingTrace& trace) { return trace.experts > 256 ? sizeof(uint16_t) : 1; }

std::size_t picks_per_token(const RoutingTrace& trace) { return std::size_t{trace.layers} * trace.used; }

class Reader {
 public:
  Reader(std::string bytes, const std::string& path) : bytes_(std::move(bytes)), path_(path) {}

  Failure wrong(std::string_view what) const {
    return fail(Code::kDataLoss, "{}: byte {}: {}", path_, at_, what);
  }
  Result<std::string_view> take(std::size_t count) {
    if (count > bytes_.size() - at_) return wrong(fmt::format("the file ends, {} bytes are missing", count));
    at_ += count;
    return std::string_view(bytes_).substr(at_ - count, count);
  }
  Result<uint32_t> number(uint32_t min, uint32_t max, std::string_view what) {
    TRY(const std::string_view stored, take(sizeof(uint32_t)));
    uint32_t value = 0;
    std::memcpy(&value, stored.data(), sizeof value);
    if (value < min || value > max)
      return wrong(fmt::format("{} {}, expected {} to {}", value, what, min, max));
    return value;
  }
  bool at_end() const { return at_ == bytes_.size(); }

 private:
  const std::string bytes_;
  const std::string& path_;
  std::size_t at_ = 0;
};

Status read_picks(Reader& reader, const RoutingTrace& trace, RoutingTrace::Conversation& conversation) {
  const std::size_t count = conversation.tokens.size() * picks_per_token(trace);
  const std::size_t width = pick_bytes(trace);
  TRY(const std::string_view stored, reader.take(count * width));
  conversation.picks.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    std::memcpy(&conversation.picks[i], stored.data() + i * width, width);
    if (conversation.picks[i] >= trace.experts)
      return reader.wrong(fmt::format("expert {} of {}", conversation.picks[i], trace.experts));
  }
  return {};
}

Result<RoutingTrace::Conversation> read_conversation(Reader& reader, const RoutingTrace& trace) {
  RoutingTrace::Conversation conversation;
  TRY(const uint32_t tokens, reader.number(1, kTokensMax, "tokens"));
  TRY(const std::string_view ids, reader.take(tokens * sizeof(int32_t)));
  conversation.tokens.resize(tokens);
  std::memcpy(conversation.tokens.data(), ids.data(), ids.size());
  TRY(const std::string_view roles, reader.take(tokens));
  for (const char role : roles) {
    if (static_cast<uint8_t>(role) > static_cast<uint8_t>(TokenRole::kGenerated))
      return reader.wrong(fmt::format("role {}, expected 0 to 2", static_cast<uint8_t>(role)));
    conversation.roles.push_back(static_cast<TokenRole>(role));
  }
  TRY(const std::string_view domains, reader.take(tokens));
  conversation.domains.assign(domains.begin(), domains.end());
  TRY_OK(read_picks(reader, trace, conversation));
  return conversation;
}

Status check_shape(const RoutingTrace& trace, const std::string& path) {
  const bool fits = trace.layers >= 1 && trace.layers <= kLayersMax && trace.experts >= 1 &&
                    trace.experts <= kExpertsMax && trace.used >= 1 &&
                    trace.used <= std::min(trace.experts, kExpertsPerTokenMax) &&
                    !trace.conversations.empty() && trace.conversations.size() <= kConversationsMax;
  if (fits) return {};
  return fail(Code::kInvalidArgument,
              "{}: {} conversations of {} layers with {} experts, {} used, cannot be written", path,
              trace.conversations.size(), trace.layers, trace.experts, trace.used);
}

Status check_conversation(const RoutingTrace& trace, std::size_t index, const std::string& path) {
  const RoutingTrace::Conversation& conversation = trace.conversations[index];
  const std::size_t tokens = conversation.tokens.size();
  if (tokens < 1 || tokens > kTokensMax || conversation.roles.size() != tokens ||
      conversation.domains.size() != tokens || conversation.picks.size() != tokens * picks_per_token(trace)) {
    return fail(
        Code::kInvalidArgument,
        "{}: conversation {} has {} tokens, {} roles, {} domains and {} picks, expected as many roles "
        "and domains as tokens and {} picks of each",
        path, index, tokens, conversation.roles.size(), conversation.domains.size(),
        conversation.picks.size(), picks_per_token(trace));
  }
  const auto wrong =
      std::ranges::find_if(conversation.picks, [&](uint16_t id) { return id >= trace.experts; });
  if (wrong == conversation.picks.end()) return {};
  return fail(Code::kInvalidArgument, "{}: conversation {} uses expert {} of {}", path, index, *wrong,
              trace.experts);
}

template <class Number>
void append(std::string& bytes, std::span<const Number> numbers) {
  bytes.append(reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes());
}

void append_conversation(std::string& bytes, const RoutingTrace& trace,
                         const RoutingTrace::Conversation& conversation) {
  const auto tokens = static_cast<uint32_t>(conversation.tokens.size());
  append(bytes, std::span(&tokens, 1));
  append(bytes, std::span(conversation.tokens));
  append(bytes, std::span(conversation.roles));
  append(bytes, std::span(conversation.domains));
  for (const uint16_t id : conversation.picks)
    bytes.append(reinterpret_cast<const char*>(&id), pick_bytes(trace));
}

}  // namespace

Result<RoutingTrace> read_routing_trace(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return fail(Code::kNotFound, "{}: cannot be read", path);
  Reader reader(std::string(std::istreambuf_iterator<char>(in), {}), path);
  TRY(const std::string_view magic, reader.take(kMagic.size()));
  if (magic != kMagic) return reader.wrong("this is no recorded routing");
  RoutingTrace trace;
  TRY(const uint32_t conversations, reader.number(1, kConversationsMax, "conversations"));
  TRY(trace.layers, reader.number(1, kLayersMax, "layers"));
  TRY(trace.experts, reader.number(1, kExpertsMax, "experts"));
  TRY(trace.used, reader.number(1, std::min(trace.experts, kExpertsPerTokenMax), "experts per token"));
  for (uint32_t i = 0; i < conversations; ++i) {
    TRY(auto conversation, read_conversation(reader, trace));
    trace.conversations.push_back(std::move(conversation));
  }
  if (!reader.at_end()) return reader.wrong("something follows the last conversation");
  return trace;
}

Status write_routing_trace(const RoutingTrace& trace, const std::string& path) {
  TRY_OK(check_shape(trace, path));
  std::string bytes(kMagic);
  const uint32_t header[] = {static_cast<uint32_t>(trace.conversations.size()), trace.layers, trace.experts,
                             trace.used};
  append(bytes, std::span<const uint32_t>(header));
  for (std::size_t i = 0; i < trace.conversations.size(); ++i) {
    TRY_OK(check_conversation(trace, i, path));
    append_conversation(bytes, trace, trace.conversations[i]);
  }
  return replace_file(path, bytes);
}

}  // namespace strata::residency
