#include "gateway/conversations/reuse_report.h"

#include <fmt/format.h>

#include <algorithm>

namespace strata::gateway {

namespace {

boost::json::value id_json(const std::optional<SnapshotId>& id) {
  return id ? boost::json::value(id->text()) : boost::json::value(nullptr);
}

}  // namespace

std::string_view lookup_result_name(LookupResult result) {
  switch (result) {
    case LookupResult::kHitLive:
      return "hit_live";
    case LookupResult::kHitRam:
      return "hit_ram";
    case LookupResult::kHitDisk:
      return "hit_disk";
    case LookupResult::kHitRoot:
      return "hit_root";
    case LookupResult::kMiss:
      return "miss";
  }
  return "";
}

ReuseReport::ReuseReport(const PrefixMatch& match, uint32_t prompt_tokens)
    : prompt_tokens_(prompt_tokens),
      reused_tokens_(match.reused_tokens()),
      known_tokens_(match.known_tokens),
      why_(match.why) {
  if (!match.state) return;
  source_ = match.state->source;
  shared_ = match.state->owner == shared_namespace();
  state_ = match.state->id;
}

Status ReuseReport::began_at(uint32_t reused_tokens) {
  if (reused_tokens > reused_tokens_) {
    return fail(Code::kOutOfRange, "the engine reused {} tokens of a state with {}", reused_tokens,
                reused_tokens_);
  }
  if (reused_tokens == reused_tokens_) return {};
  why_ = {.cause = MissCause::kError, .at_token = reused_tokens_, .entry = state_};
  reused_tokens_ = reused_tokens;
  state_.reset();
  return {};
}

void ReuseReport::kept(uint32_t position) {
  kept_tokens_ = std::max(kept_tokens_, std::min(position, prompt_tokens_));
}

LookupResult ReuseReport::result() const {
  if (reused_tokens_ == 0) return LookupResult::kMiss;
  if (shared_) return LookupResult::kHitRoot;
  if (holder_of(source_) == Holder::kEngine) return LookupResult::kHitLive;
  return source_ == Source::kRam ? LookupResult::kHitRam : LookupResult::kHitDisk;
}

CacheSplit ReuseReport::split() const {
  const uint32_t created = std::max(kept_tokens_, reused_tokens_) - reused_tokens_;
  return {.input_tokens = prompt_tokens_ - reused_tokens_ - created,
          .cache_read_input_tokens = reused_tokens_,
          .cache_creation_input_tokens = created};
}

std::string ReuseReport::why_text() const {
  const uint32_t at = why_.at_token;
  switch (why_.cause) {
    case MissCause::kNone:
      return "all but the last token was reused";
    case MissCause::kNew:
      return fmt::format("the tokens from {} on are new", at);
    case MissCause::kDiverged:
      return fmt::format("the prompt goes on otherwise than before from token {} on", at);
    case MissCause::kEvicted:
      return fmt::format("a state with {} tokens is gone: evicted, or lost with its process", at);
    case MissCause::kOptionsChanged:
      return fmt::format("a state with {} tokens was made with other options", at);
    case MissCause::kIdentity:
      return fmt::format("a state with {} tokens is of another model", at);
    case MissCause::kTooSmall:
      return "what could be reused is too short to be worth it";
    case MissCause::kNoCheckpoint:
      return fmt::format("{} tokens are known, but no state was kept there", at);
    case MissCause::kError:
      return fmt::format("a state with {} tokens could not be restored", at);
  }
  return "";
}

boost::json::object ReuseReport::to_json() const {
  boost::json::object out;
  out["prompt_tokens"] = prompt_tokens_;
  out["reused_tokens"] = reused_tokens_;
  out["known_tokens"] = known_tokens_;
  out["source"] = reused_tokens_ > 0 ? boost::json::value(source_name(source_)) : boost::json::value(nullptr);
  out["shared"] = shared_;
  out["state"] = id_json(state_);
  out["why_not_more"] = nullptr;
  if (why_.cause == MissCause::kNone) return out;
  boost::json::object why;
  why["cause"] = miss_cause_name(why_.cause);
  why["at_token"] = why_.at_token;
  why["state"] = id_json(why_.entry);
  why["text"] = why_text();
  out["why_not_more"] = std::move(why);
  return out;
}

std::string ReuseReport::header_text() const {
  std::string out = fmt::format("reused={} prompt={}", reused_tokens_, prompt_tokens_);
  if (reused_tokens_ > 0) out += fmt::format(" source={}", shared_ ? "root" : source_name(source_));
  if (why_.cause != MissCause::kNone) {
    out += fmt::format(" not_more={} at={}", miss_cause_name(why_.cause), why_.at_token);
  }
  return out;
}

}  // namespace strata::gateway
