#pragma once
// For tests: slots that follow a policy's proposals the way the GPU worker does, and fail the test on
// impossible ones.

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "services/residency/policy.h"

namespace strata::residency {

class SlotWorld {
 public:
  SlotWorld(ModelShape shape, uint32_t slots)
      : shape_(shape), slots_(slots), resident_(std::size_t{shape.layers} * shape.experts) {}

  std::span<const SlotView> slots() const { return slots_; }
  uint64_t exchanges() const { return exchanges_; }  // that had a victim
  bool resident(ExpertKey key) const { return resident_[index(key)]; }

  bool holds(ExpertKey key) const {  // resident or on its way
    return std::ranges::any_of(slots_, [&](const SlotView& slot) {
      return slot.state != SlotView::State::kFree && slot.key == key;
    });
  }

  uint32_t held_by(uint32_t layer) const {
    uint32_t held = 0;
    for (const SlotView& slot : slots_)
      held += slot.state != SlotView::State::kFree && slot.key.layer == layer;
    return held;
  }

  uint32_t count(SlotView::State state) const {
    uint32_t found = 0;
    for (const SlotView& slot : slots_) found += slot.state == state;
    return found;
  }

  // Begins the exchanges: the slots are busy until land_all().
  void begin(const std::vector<Proposal>& proposals, uint32_t budget) {
    ASSERT_LE(proposals.size(), budget);
    std::set<ExpertKey> present;
    for (const SlotView& slot : slots_) {
      if (slot.state != SlotView::State::kFree) present.insert(slot.key);
    }
    bool exchanged = false;
    for (const Proposal& proposal : proposals) {
      ASSERT_LT(proposal.slot, slots_.size());
      ASSERT_LT(proposal.incoming.layer, shape_.layers);
      ASSERT_LT(proposal.incoming.expert, shape_.experts);
      SlotView& slot = slots_[proposal.slot];
      ASSERT_NE(slot.state, SlotView::State::kBusy)
          << "slot " << proposal.slot << " proposed twice, or while in an exchange";
      ASSERT_TRUE(present.insert(proposal.incoming).second)
          << "layer " << proposal.incoming.layer << " expert " << proposal.incoming.expert
          << " is there already";
      if (slot.state == SlotView::State::kResident) {
        resident_[index(slot.key)] = false;
        exchanged = true;
        ++exchanges_;
      } else {
        ASSERT_FALSE(exchanged) << "a victim was taken before a free slot";
      }
      slot = {SlotView::State::kBusy, proposal.incoming};
    }
  }

  void land_all() {
    for (SlotView& slot : slots_) {
      if (slot.state != SlotView::State::kBusy) continue;
      slot.state = SlotView::State::kResident;
      resident_[index(slot.key)] = true;
    }
  }

 private:
  std::size_t index(ExpertKey key) const { return std::size_t{key.layer} * shape_.experts + key.expert; }

  ModelShape shape_;
  std::vector<SlotView> slots_;
  std::vector<bool> resident_;
  uint64_t exchanges_ = 0;
};

}  // namespace strata::residency
