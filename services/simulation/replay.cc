#include "services/simulation/replay.h"

#include <algorithm>
#include <utility>

#include "services/base/check.h"

namespace strata::simulation {

using residency::SlotView;
using residency::TokenRole;

Replay::Replay(const residency::RoutingTrace& trace, std::unique_ptr<residency::Policy> policy,
               const ReplayOptions& options)
    : trace_(trace),
      policy_(std::move(policy)),
      options_(options),
      budget_(options.limits, options.expert_bytes),
      slots_(options.slots),
      resident_(std::size_t{trace.layers} * trace.experts),
      decode_uses_(resident_.size()),
      prefill_uses_(resident_.size()) {
  CHECK(options.windows_per_look > 0 && options.prefill_chunk_tokens > 0,
        "a look every {} windows, chunks of {}", options.windows_per_look, options.prefill_chunk_tokens);
  begin_exchanges(policy_->propose(slots_, options.slots));
  for (Landing& landing : landings_) landing.window = 0;
  land();
}

void Replay::run(const residency::RoutingTrace::Conversation& conversation) {
  const std::size_t tokens = conversation.roles.size();
  for (std::size_t begin = 0; begin < tokens;) {
    const bool generated = conversation.roles[begin] == TokenRole::kGenerated;
    const std::size_t most = generated ? 1 : options_.prefill_chunk_tokens;
    std::size_t end = begin + 1;
    while (end < tokens && end - begin < most && conversation.roles[end] != TokenRole::kGenerated) ++end;
    window(conversation, begin, end, generated);
    begin = end;
  }
}

void Replay::window(const residency::RoutingTrace::Conversation& conversation, std::size_t begin,
                    std::size_t end, bool generated) {
  land();
  auto& uses = generated ? decode_uses_ : prefill_uses_;
  uint64_t hits = 0;
  for (std::size_t token = begin; token < end; ++token) {
    for (uint32_t layer = 0; layer < trace_.layers; ++layer) {
      for (const uint16_t expert : trace_.picks(conversation, token, layer)) {
        const std::size_t used = index({layer, expert});
        hits += resident_[used];
        ++uses[used];
      }
    }
  }
  const uint64_t total = (end - begin) * trace_.layers * trace_.used;
  (generated ? result_.decode_hits : result_.prefill_hits) += hits;
  (generated ? result_.decode_uses : result_.prefill_uses) += total;
  (generated ? decode_tokens_ : prefill_tokens_) += end - begin;
  if (generated) hits_of_tokens_.push_back(static_cast<uint32_t>(hits));
  ++result_.windows;
  if (++windows_since_look_ == options_.windows_per_look) look();
}

void Replay::look() {
  residency::Usage usage{.decode_uses = {},
                         .decode_tokens = decode_tokens_,
                         .prefill_uses = {},
                         .prefill_tokens = prefill_tokens_};
  if (decode_tokens_ > 0) usage.decode_uses = decode_uses_;
  if (prefill_tokens_ > 0) usage.prefill_uses = prefill_uses_;
  policy_->observe(usage);
  if (decode_tokens_ > 0) std::ranges::fill(decode_uses_, 0);
  if (prefill_tokens_ > 0) std::ranges::fill(prefill_uses_, 0);
  decode_tokens_ = prefill_tokens_ = 0;

  budget_.passed(windows_since_look_, windows_since_look_ / options_.windows_per_second);
  windows_since_look_ = 0;
  const auto proposals = policy_->propose(slots_, budget_.available(options_.slots));
  begin_exchanges(proposals);
  const uint64_t bytes = proposals.size() * options_.expert_bytes;
  budget_.spend(static_cast<uint32_t>(proposals.size()), bytes);
  result_.exchanges += proposals.size();
  result_.bytes += bytes;
}

void Replay::begin_exchanges(const std::vector<residency::Proposal>& proposals) {
  for (const auto& [slot, incoming] : proposals) {
    SlotView& view = slots_[slot];
    if (view.state == SlotView::State::kResident) resident_[index(view.key)] = 0;
    view = {SlotView::State::kBusy, incoming};
    landings_.push_back({result_.windows + options_.landing_windows, slot});
  }
}

void Replay::land() {
  while (!landings_.empty() && landings_.front().window <= result_.windows) {
    SlotView& view = slots_[landings_.front().slot];
    view.state = SlotView::State::kResident;
    resident_[index(view.key)] = 1;
    landings_.pop_front();
  }
}

}  // namespace strata::simulation
