#include "services/residency/exchange_plan.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "services/base/check.h"

namespace strata::residency {
namespace {

struct Resident {
  uint32_t slot = 0;
  uint32_t expert = 0;
};

struct LayerState {
  uint32_t held = 0;                // slots with an expert of this layer, or one on its way
  std::vector<bool> present;        // (experts) resident or incoming
  std::vector<bool> pinned;         // (experts)
  std::vector<Resident> residents;  // possible victims
};

struct Candidate {
  uint32_t layer = 0;
  uint32_t expert = 0;
  uint32_t rank = 0;  // among those of its layer
  double worth = 0;
};

struct Exchange {
  Proposal proposal;
  double gain = 0;
};

class Planner {
 public:
  Planner(const PlanInput& input, std::span<const SlotView> slots, uint32_t budget)
      : input_(input), budget_(budget) {
    layers_.resize(input.shape.layers);
    for (LayerState& layer : layers_) {
      layer.present.resize(input.shape.experts);
      layer.pinned.resize(input.shape.experts);
    }
    for (const auto [layer, expert] : input.pins) layers_[layer].pinned[expert] = true;
    for (uint32_t slot = 0; slot < slots.size(); ++slot) take_in(slot, slots[slot]);
  }

  std::vector<Proposal> run() {
    fill_free_slots();
    for (uint32_t layer = 0; layer < layers_.size(); ++layer) sort_residents(layer);
    if (free_.empty()) move_between_layers();
    exchange_within_layers();
    return std::move(proposals_);
  }

 private:
  void take_in(uint32_t slot, const SlotView& view) {
    if (view.state == SlotView::State::kFree) {
      free_.push_back(slot);
      return;
    }
    const auto [layer, expert] = view.key;
    CHECK(layer < input_.shape.layers && expert < input_.experts[layer], "slot {} holds layer {} expert {}",
          slot, layer, expert);
    ++layers_[layer].held;
    layers_[layer].present[expert] = true;
    const bool may_go = view.state == SlotView::State::kResident && !layers_[layer].pinned[expert];
    if (may_go) layers_[layer].residents.push_back({slot, expert});
  }

  double worth(uint32_t layer, uint32_t expert) const {
    if (layers_[layer].pinned[expert]) return std::numeric_limits<double>::infinity();
    return input_.worth[std::size_t{layer} * input_.shape.experts + expert];
  }
  uint32_t budget_left() const { return budget_ - static_cast<uint32_t>(proposals_.size()); }
  uint32_t missing(uint32_t layer) const {
    return input_.quotas[layer] - std::min(input_.quotas[layer], layers_[layer].held);
  }

  void propose(uint32_t slot, uint32_t layer, uint32_t expert) {
    proposals_.push_back({slot, {layer, expert}});
    layers_[layer].present[expert] = true;
    ++layers_[layer].held;
  }

  // The `count` best absent experts of a layer, the best first.
  std::vector<Candidate> best_absent(uint32_t layer, std::size_t count) const {
    std::vector<Candidate> all;
    for (uint32_t expert = 0; expert < input_.experts[layer]; ++expert) {
      if (!layers_[layer].present[expert]) all.push_back({layer, expert, 0, worth(layer, expert)});
    }
    count = std::min(count, all.size());
    std::partial_sort(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count), all.end(),
                      [](const Candidate& a, const Candidate& b) {
                        return std::tuple(b.worth, a.expert) < std::tuple(a.worth, b.expert);
                      });
    all.resize(count);
    for (uint32_t rank = 0; rank < count; ++rank) all[rank].rank = rank;
    return all;
  }

  // What layers below their quota want, at most `count`, the best first.
  std::vector<Candidate> wanted(std::size_t count) const {
    std::vector<Candidate> all;
    for (uint32_t layer = 0; layer < layers_.size(); ++layer) {
      const auto of_layer = best_absent(layer, std::min<std::size_t>(missing(layer), count));
      all.insert(all.end(), of_layer.begin(), of_layer.end());
    }
    std::sort(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) {
      return std::tuple(b.worth, a.rank, a.layer) < std::tuple(a.worth, b.rank, b.layer);
    });
    all.resize(std::min(count, all.size()));
    return all;
  }

  void fill_free_slots() {
    const auto candidates = wanted(std::min<std::size_t>(free_.size(), budget_left()));
    for (std::size_t i = 0; i < candidates.size(); ++i)
      propose(free_[i], candidates[i].layer, candidates[i].expert);
    free_.erase(free_.begin(), free_.begin() + static_cast<std::ptrdiff_t>(candidates.size()));
  }

  // The least worthy residents last, so that victims are taken from the end.
  void sort_residents(uint32_t layer) {
    std::ranges::sort(layers_[layer].residents, [&](const Resident& a, const Resident& b) {
      return std::tuple(worth(layer, b.expert), a.expert) < std::tuple(worth(layer, a.expert), b.expert);
    });
  }

  // Layer with the least worthy of the residents that are too many; layers_.size() if none is above its
  // quota.
  std::size_t layer_to_take_from() const {
    std::size_t found = layers_.size();
    double least = 0;
    for (uint32_t layer = 0; layer < layers_.size(); ++layer) {
      const LayerState& state = layers_[layer];
      if (state.held <= input_.quotas[layer] || state.residents.empty()) continue;
      const double victim = worth(layer, state.residents.back().expert);
      if (found == layers_.size() || victim < least) std::tie(found, least) = std::tuple(layer, victim);
    }
    return found;
  }

  void move_between_layers() {
    for (const Candidate& candidate : wanted(budget_left())) {
      const std::size_t from = layer_to_take_from();
      if (from == layers_.size()) return;
      const Resident victim = layers_[from].residents.back();
      layers_[from].residents.pop_back();
      --layers_[from].held;
      propose(victim.slot, candidate.layer, candidate.expert);
    }
  }

  bool clearly_better(double newcomer, double victim) const {
    return newcomer > input_.margin.ratio * victim + input_.margin.difference;
  }

  void exchange_within_layers() {
    const uint32_t budget = budget_left();
    if (budget == 0) return;
    std::vector<Exchange> exchanges;
    for (uint32_t layer = 0; layer < layers_.size(); ++layer) {
      const auto& residents = layers_[layer].residents;
      for (const Candidate& newcomer : best_absent(layer, std::min<std::size_t>(budget, residents.size()))) {
        const Resident& victim = residents[residents.size() - 1 - newcomer.rank];
        const double victim_worth = worth(layer, victim.expert);
        if (!clearly_better(newcomer.worth, victim_worth)) break;  // further pairs differ less
        exchanges.push_back({{victim.slot, {layer, newcomer.expert}}, newcomer.worth - victim_worth});
      }
    }
    std::ranges::sort(exchanges, [](const Exchange& a, const Exchange& b) {
      return std::tuple(b.gain, a.proposal.incoming) < std::tuple(a.gain, b.proposal.incoming);
    });
    for (std::size_t i = 0; i < exchanges.size() && i < budget; ++i)
      proposals_.push_back(exchanges[i].proposal);
  }

  const PlanInput& input_;
  const uint32_t budget_;
  std::vector<LayerState> layers_;
  std::vector<uint32_t> free_;
  std::vector<Proposal> proposals_;
};

}  // namespace

std::vector<Proposal> plan_exchanges(const PlanInput& input, std::span<const SlotView> slots,
                                     uint32_t budget) {
  return Planner(input, slots, budget).run();
}

}  // namespace strata::residency
