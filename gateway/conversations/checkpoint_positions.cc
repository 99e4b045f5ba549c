#include "gateway/conversations/checkpoint_positions.h"

#include <algorithm>
#include <map>

namespace strata::gateway {

namespace {

using snapshot::SnapshotKind;

struct Candidate {
  CheckpointPosition place;
  // How likely requests are to part from the prompt here, or at a place left out behind it.
  double demand = 0;
};

// How many of ten requests that part from a prompt do so at a place of this kind. Only the order matters: new
// chats over the same root and edits of the last message are what clients do all day; going back to an
// earlier turn is rarer; parting in the middle of a message is an accident. All places of a kind share its
// part, or a long history would outweigh its root.
double demand_of(SnapshotKind kind) {
  switch (kind) {
    case SnapshotKind::kRoot:
      return 4;
    case SnapshotKind::kBeforeLastUser:
      return 3;
    case SnapshotKind::kTurn:
      return 2;
    case SnapshotKind::kInterval:
      return 1;
    case SnapshotKind::kEnd:  // of a turn, not of a prompt
      return 0;
  }
  return 0;
}

class Candidates {
 public:
  Candidates(uint32_t above, uint32_t below, uint32_t align)
      : above_(above), below_(below), align_(std::max(align, 1U)) {}

  void add(uint32_t position, SnapshotKind kind) {
    position -= position % align_;
    if (position <= above_ || position >= below_) return;
    list_.push_back({.place = {.position = position, .kind = kind}});
  }

  void share_demand() {
    std::map<SnapshotKind, double> count;
    for (const Candidate& one : list_) ++count[one.place.kind];
    for (Candidate& one : list_) one.demand = demand_of(one.place.kind) / count[one.place.kind];
  }

  // Of several too close together the first place stays, and the kind that counts most.
  void thin_out(uint32_t gap_min, bool reused_stays) {
    std::ranges::sort(list_, {}, [](const Candidate& one) { return one.place.position; });
    std::vector<Candidate> kept;
    for (const Candidate& one : list_) {
      const uint32_t before = kept.empty() ? above_ : kept.back().place.position;
      const uint32_t gap = kept.empty() && !reused_stays ? 1 : std::max(gap_min, 1U);
      if (one.place.position - before >= gap) {
        kept.push_back(one);
      } else if (!kept.empty()) {
        kept.back().demand += one.demand;
        if (demand_of(one.place.kind) > demand_of(kept.back().place.kind))
          kept.back().place.kind = one.place.kind;
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

std::vector<CheckpointPosition> checkpoint_positions(const PromptLandmarks& landmarks, uint32_t prompt_tokens,
                                                     uint32_t reused_tokens,
                                                     const CheckpointOptions& options) {
  Candidates candidates(reused_tokens, prompt_tokens, options.align_tokens);
  candidates.add(landmarks.system_end, SnapshotKind::kRoot);
  candidates.add(landmarks.last_user, SnapshotKind::kBeforeLastUser);
  for (const uint32_t turn : landmarks.turns) candidates.add(turn, SnapshotKind::kTurn);
  const uint64_t chunk = std::max(options.chunk_tokens, 1U);
  if (const uint64_t step = (options.every_tokens + chunk - 1) / chunk * chunk; step > 0) {
    for (uint64_t at = step; at < prompt_tokens; at += step) {
      candidates.add(static_cast<uint32_t>(at), SnapshotKind::kInterval);
    }
  }
  candidates.share_demand();
  candidates.thin_out(options.gap_tokens_min, options.reused_stays);
  uint32_t most = options.positions_max;
  if (options.chunk_tokens > 0) {
    const uint32_t to_read = prompt_tokens > reused_tokens ? prompt_tokens - reused_tokens : 0;
    most = std::min(most, 2 + to_read / options.chunk_tokens);
  }
  candidates.leave_at_most(most);
  std::vector<CheckpointPosition> places = candidates.places();
  if (options.before_last_token && prompt_tokens > 0) {
    const uint32_t align = std::max(options.align_tokens, 1U);
    const uint32_t last = (prompt_tokens - 1) / align * align;
    const uint32_t before = places.empty() ? reused_tokens : places.back().position;
    const uint32_t gap = places.empty() && !options.reused_stays ? 1 : std::max(options.gap_tokens_min, 1U);
    if (last >= before + gap) places.push_back({.position = last, .kind = SnapshotKind::kTurn});
  }
  return places;
}

}  // namespace strata::gateway
