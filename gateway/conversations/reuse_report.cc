#include "gateway/conversations/reuse_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

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
    : promised_(match), prompt_tokens_(prompt_tokens) {
  set_promise();
}

void ReuseReport::set_promise() {
  reused_tokens_ = promised_.reused_tokens();
  known_tokens_ = promised_.known_tokens;
  why_ = promised_.why;
  not_restored_.clear();
  state_.reset();
  shared_ = false;
  if (!promised_.state) return;
  source_ = promised_.state->source;
  shared_ = promised_.state->owner == shared_namespace();
  state_ = promised_.state->id;
}

void ReuseReport::began(const EngineReuse& engine) {
  set_promise();
  const uint32_t promised = reused_tokens_;
  reused_tokens_ = std::min(engine.reused_tokens, prompt_tokens_);
  if (reused_tokens_ == promised) {
    if (!engine.source) return;
    // A state of the same length from somebody else is another one.
    const bool other = holder_of(*engine.source) != holder_of(source_);
    if (other) state_.reset();
    if (other || holder_of(source_) == Holder::kStore) source_ = *engine.source;
    return;
  }
  // Without a word of the engine's: whatever it began with instead was on its device.
  source_ = engine.source.value_or(reused_tokens_ > promised ? Source::kLive : Source::kCheckpoint);
  shared_ = false;
  if (reused_tokens_ < promised) {
    why_ = {.cause = MissCause::kError, .at_token = promised, .entry = std::exchange(state_, std::nullopt)};
    not_restored_ = engine.not_restored;
    return;
  }
  state_.reset();
  known_tokens_ = std::max(known_tokens_, reused_tokens_);
  if (reused_tokens_ + 1 >= prompt_tokens_) {
    why_ = {};
  } else if (why_.at_token <= reused_tokens_) {  // of what the index knew; the engine knew more
    why_ = {.cause = MissCause::kNew, .at_token = reused_tokens_};
  }
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
      return fmt::format("a state with {} tokens could not be restored{}{}", at,
                         not_restored_.empty() ? "" : ": ", not_restored_);
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

std::string ReuseReport::header_text() const { return reused_text(/*with_prompt=*/true); }
std::string ReuseReport::log_text() const { return reused_text(/*with_prompt=*/false); }

std::string ReuseReport::reused_text(bool with_prompt) const {
  std::string out = fmt::format("reused={}", reused_tokens_);
  if (with_prompt) out += fmt::format(" prompt={}", prompt_tokens_);
  if (reused_tokens_ > 0) out += fmt::format(" source={}", shared_ ? "root" : source_name(source_));
  if (why_.cause != MissCause::kNone) {
    out += fmt::format(" not_more={} at={}", miss_cause_name(why_.cause), why_.at_token);
  }
  return out;
}

}  // namespace strata::gateway
