#include "gateway/conversations/checkpoint_positions.h"

#include <algorithm>
#include <map>
#include <utility>

namespace strata::gateway {

namespace {

struct Candidate {
  CheckpointPosition place;
  double demand =
      0;  // how likely requests are to part from the prompt here, or at a place left out behind it
};

// How many of ten requests that part from a prompt do so at a place of this kind. Only the order matters: new
// chats over the same root and edits of the last message are what clients do all day; going back to an
// earlier turn is rarer; parting in the middle of a message is an accident. All places of a kind share its
// part, or a long history would outweigh its root.
double demand_of(CheckpointKind kind) {
  switch (kind) {
    case CheckpointKind::kRoot:
    case CheckpointKind::kBeforeLastUser:
      return 3.5;
    case CheckpointKind::kTurn:
      return 2;
    case CheckpointKind::kInterval:
      return 1;
  }
  return 0;
}

class Candidates {
 public:
  Candidates(uint32_t above, uint32_t below, uint32_t align)
      : above_(above), below_(below), align_(std::max(align, 1U)) {}

  void add(uint32_t position, CheckpointKind kind) {
    position -= position % align_;
    if (position <= above_ || position >= below_) return;
    list_.push_back({.place = {.position = position, .kind = kind}});
  }

  void share_demand() {
    std::map<CheckpointKind, double> count;
    for (const Candidate& one : list_) ++count[one.place.kind];
    for (Candidate& one : list_) one.demand = demand_of(one.place.kind) / count[one.place.kind];
  }

  // Of several too close together the first place stays, and the first kind of all of them.
  void thin_out(uint32_t gap_min) {
    std::ranges::sort(list_, {},
                      [](const Candidate& one) { return std::pair(one.place.position, one.place.kind); });
    std::vector<Candidate> kept;
    for (const Candidate& one : list_) {
      const uint32_t before = kept.empty() ? above_ : kept.back().place.position;
      if (one.place.position - before >= std::max(gap_min, 1U)) {
        kept.push_back(one);
      } else if (!kept.empty()) {
        kept.back().demand += one.demand;
        kept.back().place.kind = std::min(kept.back().place.kind, one.place.kind);
      }
    }
    list_ = std::move(kept);
  }

  void leave_at_most(uint32_t count) {
    while (list_.size() > count) {
      std::size_t cheapest = 0;
      for (std::size_t i = 1; i < list_.size(); ++i) {
        if (loss(i) < loss(cheapest)) cheapest = i;
      }
      // Whoever would have come back to it comes back to the one before.
      if (cheapest > 0) list_[cheapest - 1].demand += list_[cheapest].demand;
      list_.erase(list_.begin() + static_cast<std::ptrdiff_t>(cheapest));
    }
  }

  std::vector<CheckpointPosition> places() const {
    std::vector<CheckpointPosition> places;
    for (const Candidate& one : list_) places.push_back(one.place);
    return places;
  }

 private:
  double loss(std::size_t index) const {
    const uint32_t before = index == 0 ? above_ : list_[index - 1].place.position;
    return list_[index].demand * (list_[index].place.position - before);
  }

  uint32_t above_, below_, align_;
  std::vector<Candidate> list_;
};

}  // namespace

std::string_view checkpoint_kind_name(CheckpointKind kind) {
  switch (kind) {
    case CheckpointKind::kRoot:
      return "root";
    case CheckpointKind::kBeforeLastUser:
      return "before_last_user";
    case CheckpointKind::kTurn:
      return "turn";
    case CheckpointKind::kInterval:
      return "interval";
  }
  return "";
}

std::vector<CheckpointPosition> checkpoint_positions(const PromptLandmarks& landmarks, uint32_t prompt_tokens,
                                                     uint32_t reused_tokens,
                                                     const CheckpointOptions& options) {
  Candidates candidates(reused_tokens, prompt_tokens, options.align_tokens);
  candidates.add(landmarks.system_end, CheckpointKind::kRoot);
  candidates.add(landmarks.last_user, CheckpointKind::kBeforeLastUser);
  for (const uint32_t turn : landmarks.turns) candidates.add(turn, CheckpointKind::kTurn);
  if (options.every_tokens > 0) {
    for (uint64_t at = options.every_tokens; at < prompt_tokens; at += options.every_tokens) {
      candidates.add(static_cast<uint32_t>(at), CheckpointKind::kInterval);
    }
  }
  candidates.share_demand();
  candidates.thin_out(options.gap_tokens_min);
  candidates.leave_at_most(options.positions_max);
  return candidates.places();
}

}  // namespace strata::gateway
