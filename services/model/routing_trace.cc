#include "services/model/routing_trace.h"

#include <bit>
#include <cstring>
#include <fstream>
#include <iterator>

#include "services/base/limits.h"

namespace strata::model {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are read as they lie in the file");

constexpr std::string_view kMagic = "STRTRC01";

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

Result<RoutingTrace::Conversation> read_conversation(Reader& reader, const RoutingTrace& trace) {
  constexpr uint32_t kTokensMax = 1 << 24;
  // A token, its role and its domain come before the picks.
  constexpr std::size_t kTokenBytes = sizeof(int32_t) + 1 + 1;
  RoutingTrace::Conversation conversation;
  TRY(conversation.tokens, reader.number(1, kTokensMax, "tokens"));
  TRY_OK(reader.take(conversation.tokens * kTokenBytes).map([](auto) {}));
  const std::size_t count = std::size_t{conversation.tokens} * trace.layers * trace.used;
  const std::size_t width = trace.experts > 256 ? sizeof(uint16_t) : 1;
  TRY(const std::string_view stored, reader.take(count * width));
  conversation.picks.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    std::memcpy(&conversation.picks[i], stored.data() + i * width, width);
    if (conversation.picks[i] >= trace.experts)
      return reader.wrong(fmt::format("expert {} of {}", conversation.picks[i], trace.experts));
  }
  return conversation;
}

}  // namespace

Result<RoutingTrace> read_routing_trace(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return fail(Code::kNotFound, "{}: cannot be read", path);
  Reader reader(std::string(std::istreambuf_iterator<char>(in), {}), path);
  TRY(const std::string_view magic, reader.take(kMagic.size()));
  if (magic != kMagic) return reader.wrong("this is no recorded routing");
  constexpr uint32_t kConversationsMax = 1 << 20;
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

}  // namespace strata::model
