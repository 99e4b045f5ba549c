#pragma once
// What an answer says about its prompt: how many tokens did not have to be read, where their state came from,
// and why not more (rule C17). Made from what the index found, corrected by what the engine did.

#include <boost/json/object.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "gateway/conversations/prefix_index.h"

namespace strata::gateway {

// How a search ended, as strata_conv_lookups_total counts it.
enum class LookupResult : uint8_t { kHitLive, kHitRam, kHitDisk, kHitRoot, kMiss };
std::string_view lookup_result_name(LookupResult result);

// The tokens of a prompt as Anthropic's usage divides them; the three add up to the prompt (rule B13).
struct CacheSplit {
  uint32_t input_tokens = 0;                 // read, and not kept
  uint32_t cache_read_input_tokens = 0;      // reused
  uint32_t cache_creation_input_tokens = 0;  // read, and kept for later requests
  bool operator==(const CacheSplit&) const = default;
};

// What the engine says of where it began with a prompt.
struct EngineReuse {
  uint32_t reused_tokens = 0;
  std::optional<Source> source = {};  // of their state; not said yet while the answer goes on
  std::string not_restored = {};  // why it could not use the parked state that it was told; empty: nothing
};

class ReuseReport {
 public:
  ReuseReport(const PrefixMatch& match, uint32_t prompt_tokens);

  // The engine has begun. It decides last: fewer tokens than the index promised mean that the state was gone
  // or could not be restored (cause kError); more, that it had one which the index had not heard of yet. Of
  // several calls the last counts.
  void began(const EngineReuse& engine);
  // A state after the first `position` tokens of the prompt was kept. Of several the largest counts.
  void kept(uint32_t position);

  uint32_t prompt_tokens() const { return prompt_tokens_; }
  uint32_t reused_tokens() const { return reused_tokens_; }  // OpenAI: prompt_tokens_details.cached_tokens
  uint32_t known_tokens() const { return known_tokens_; }
  const WhyNotMore& why() const { return why_; }
  LookupResult result() const;
  CacheSplit split() const;

  // One sentence for people, without content: "the prompt goes on otherwise than before from token 1510 on".
  std::string why_text() const;
  // For a debug field: {"prompt_tokens", "reused_tokens", "known_tokens", "source", "shared", "state",
  // "why_not_more": {"cause", "at_token", "state", "text"}}. source and state are null when nothing was
  // reused, or when the engine fell back to a state that it did not name; why_not_more is null when all was
  // reused.
  boost::json::object to_json() const;
  // For a header: "reused=1500 prompt=1520 source=ram not_more=diverged at=1510".
  std::string header_text() const;
  // The same for a log line that has the prompt's tokens already: "reused=1500 source=ram ...".
  std::string log_text() const;

 private:
  void set_promise();
  std::string reused_text(bool with_prompt) const;

  PrefixMatch promised_;
  uint32_t prompt_tokens_ = 0, reused_tokens_ = 0, known_tokens_ = 0, kept_tokens_ = 0;
  Source source_ = Source::kLive;  // of what was reused
  bool shared_ = false;
  std::optional<SnapshotId> state_;
  WhyNotMore why_;
  std::string not_restored_;
};

}  // namespace strata::gateway
