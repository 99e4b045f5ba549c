#include "services/residency/exchange_plan.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "services/base/check.h"
#include "services/residency/bounded_best.h"

namespace strata::residency {
namespace {

struct Candidate {
  double worth = 0;
  uint32_t expert = 0;
  uint32_t layer = 0;
  uint32_t slot = 0;  // of a resident
};

bool more_worthy(const Candidate& a, const Candidate& b) {
  return std::tuple(b.worth, a.expert, a.layer) < std::tuple(a.worth, b.expert, b.layer);
}
bool less_worthy(const Candidate& a, const Candidate& b) { return more_worthy(b, a); }

struct Exchange {
  Proposal proposal;
  double gain = 0;
};

// Layers that share their slots: all of them, or a single one.
struct Group {
  uint32_t first_layer = 0, end_layer = 0;
  uint64_t quota = 0;
};

}  // namespace

// One call of plan().
class Plan {
 public:
  Plan(ExchangePlanner& planner, const PlanInput& input, std::span<const SlotView> slots, uint32_t budget)
      : planner_(planner), input_(input), slots_(slots), budget_(budget) {
    planner_.state_ = planner_.absent_;
    std::ranges::fill(planner_.held_, 0);
    for (const ExpertKey pin : input.pins) state(pin) = State::kPinnedAbsent;
    for (uint32_t slot = 0; slot < slots.size(); ++slot) take_in(slot, slots[slot]);
    pins_wait_ = std::ranges::any_of(
        input.pins, [&](const ExpertKey& pin) { return state(pin) == State::kPinnedAbsent; });
    if (input.quotas.empty()) {
      groups_.push_back(
          {0, planner_.shape_.layers, std::min<uint64_t>(slots.size(), planner_.experts_total_)});
    }
    for (uint32_t layer = 0; layer < input.quotas.size(); ++layer)
      groups_.push_back({layer, layer + 1, input.quotas[layer]});
  }

  std::vector<Proposal> run() {
    fill_free_slots();
    if (free_.empty()) {
      if (groups_.size() > 1) move_between_groups();
      exchange_within_groups();
    }
    return std::move(proposals_);
  }

 private:
  using State = ExchangePlanner::State;

  State& state(ExpertKey key) { return planner_.state_[index(key)]; }
  std::size_t index(ExpertKey key) const {
    return std::size_t{key.layer} * planner_.shape_.experts + key.expert;
  }

  void take_in(uint32_t slot, const SlotView& view) {
    if (view.state == SlotView::State::kFree) {
      free_.push_back(slot);
      return;
    }
    const auto [layer, expert] = view.key;
    const ModelShape& shape = planner_.shape_;
    CHECK(layer < shape.layers && expert < shape.experts, "slot {} holds layer {} expert {}", slot, layer,
          expert);
    ++planner_.held_[layer];
    state(view.key) = State::kPresent;
  }

  uint32_t budget_left() const { return budget_ - static_cast<uint32_t>(proposals_.size()); }

  uint64_t held(const Group& group) const {
    uint64_t sum = 0;
    for (uint32_t layer = group.first_layer; layer < group.end_layer; ++layer) sum += planner_.held_[layer];
    return sum;
  }

  void propose(uint32_t slot, ExpertKey incoming) {
    proposals_.push_back({slot, incoming});
    state(incoming) = State::kPresent;
    planner_.may_go_at_[index(incoming)] = input_.now_tokens + input_.stay_tokens;
    ++planner_.held_[incoming.layer];
  }

  // The `count` best absent experts of a group, the best first.
  std::vector<Candidate> best_absent(const Group& group, std::size_t count) const {
    if (count == 0) return {};
    BoundedBest<Candidate, decltype(&more_worthy)> best(count, &more_worthy);
    double bar = -std::numeric_limits<double>::infinity();
    for (uint32_t layer = group.first_layer; layer < group.end_layer; ++layer) {
      const std::size_t begin = std::size_t{layer} * planner_.shape_.experts;
      for (uint32_t expert = 0; expert < planner_.shape_.experts; ++expert) {
        // Most experts fall below the bar: one comparison each.
        const State now = planner_.state_[begin + expert];
        if (now == State::kPresent || (now == State::kAbsent && input_.worth[begin + expert] < bar)) continue;
        const bool pinned = now == State::kPinnedAbsent;
        best.offer({pinned ? std::numeric_limits<double>::infinity() : input_.worth[begin + expert], expert,
                    layer, 0});
        if (best.full()) bar = best.worst().worth;
      }
    }
    return best.take();
  }

  bool may_go(const SlotView& view) const {
    return view.state == SlotView::State::kResident &&
           (pins_wait_ || planner_.may_go_at_[index(view.key)] <= input_.now_tokens) &&
           std::ranges::find(input_.pins, view.key) == input_.pins.end();
  }

  // The least worthy residents of each group that may go, at most `count` of each, the least worthy first.
  std::vector<std::vector<Candidate>> worst_residents(std::size_t count) const {
    using Worst = BoundedBest<Candidate, decltype(&less_worthy)>;
    std::vector<Worst> worst(groups_.size(), Worst(count, &less_worthy));
    for (uint32_t slot = 0; slot < slots_.size(); ++slot) {
      const auto [layer, expert] = slots_[slot].key;
      const Worst& of_group = worst[groups_.size() == 1 ? 0 : layer];
      const bool above_the_bar =
          of_group.full() && input_.worth[index(slots_[slot].key)] > of_group.worst().worth;
      if (above_the_bar || !may_go(slots_[slot])) continue;
      worst[groups_.size() == 1 ? 0 : layer].offer(
          {input_.worth[index(slots_[slot].key)], expert, layer, slot});
    }
    std::vector<std::vector<Candidate>> sorted;
    for (Worst& of_group : worst) sorted.push_back(of_group.take());
    return sorted;
  }

  // What groups below their quota want, at most `count`, the best first.
  std::vector<Candidate> wanted(std::size_t count) const {
    std::vector<Candidate> all;
    for (const Group& group : groups_) {
      const uint64_t missing = group.quota - std::min(group.quota, held(group));
      if (missing == 0) continue;
      const auto of_group = best_absent(group, std::min<std::size_t>(missing, count));
      all.insert(all.end(), of_group.begin(), of_group.end());
    }
    std::ranges::sort(all, more_worthy);
    all.resize(std::min(count, all.size()));
    return all;
  }

  void fill_free_slots() {
    if (free_.empty()) return;
    const auto candidates = wanted(std::min<std::size_t>(free_.size(), budget_left()));
    for (std::size_t i = 0; i < candidates.size(); ++i)
      propose(free_[i], {candidates[i].layer, candidates[i].expert});
    free_.erase(free_.begin(), free_.begin() + static_cast<std::ptrdiff_t>(candidates.size()));
    // Slots beyond the quotas, or beyond the experts there are, stay free for ever.
    const bool full =
        std::ranges::all_of(groups_, [&](const Group& group) { return held(group) >= group.quota; });
    if (full) free_.clear();
  }

  // The group with the least worthy of the residents that are too many; groups_.size() if none is above its
  // quota.
  std::size_t group_to_take_from(const std::vector<std::vector<Candidate>>& victims,
                                 const std::vector<std::size_t>& taken) const {
    std::size_t found = groups_.size();
    for (std::size_t group = 0; group < groups_.size(); ++group) {
      if (held(groups_[group]) <= groups_[group].quota || taken[group] == victims[group].size()) continue;
      const bool less =
          found == groups_.size() || victims[group][taken[group]].worth < victims[found][taken[found]].worth;
      if (less) found = group;
    }
    return found;
  }

  void move_between_groups() {
    const auto candidates = wanted(budget_left());
    if (candidates.empty()) return;
    const auto victims = worst_residents(budget_left());
    std::vector<std::size_t> taken(groups_.size());
    for (const Candidate& candidate : candidates) {
      const std::size_t from = group_to_take_from(victims, taken);
      if (from == groups_.size()) return;
      const Candidate& victim = victims[from][taken[from]++];
      --planner_.held_[victim.layer];
      propose(victim.slot, {candidate.layer, candidate.expert});
      moved_.push_back(victim.slot);
    }
  }

  bool clearly_better(double newcomer, double victim) const {
    return newcomer > input_.margin.ratio * victim + input_.margin.difference;
  }

  void exchange_within_groups() {
    if (budget_left() == 0) return;
    auto victims = worst_residents(std::size_t{budget_});
    std::vector<Exchange> exchanges;
    for (std::size_t group = 0; group < groups_.size(); ++group) {
      std::erase_if(victims[group], [&](const Candidate& victim) {
        return std::ranges::find(moved_, victim.slot) != moved_.end();
      });
      const auto newcomers =
          best_absent(groups_[group], std::min<std::size_t>(budget_left(), victims[group].size()));
      for (std::size_t i = 0; i < newcomers.size(); ++i) {
        const Candidate& victim = victims[group][i];
        if (!clearly_better(newcomers[i].worth, victim.worth)) break;  // further pairs differ less
        exchanges.push_back(
            {{victim.slot, {newcomers[i].layer, newcomers[i].expert}}, newcomers[i].worth - victim.worth});
      }
    }
    std::ranges::sort(exchanges, [](const Exchange& a, const Exchange& b) {
      return std::tuple(b.gain, a.proposal.incoming) < std::tuple(a.gain, b.proposal.incoming);
    });
    const std::size_t count = std::min<std::size_t>(exchanges.size(), budget_left());
    for (std::size_t i = 0; i < count; ++i) {
      const auto [slot, incoming] = exchanges[i].proposal;
      --planner_.held_[slots_[slot].key.layer];
      propose(slot, incoming);
    }
  }

  ExchangePlanner& planner_;
  const PlanInput& input_;
  const std::span<const SlotView> slots_;
  const uint32_t budget_;
  bool pins_wait_ = false;  // then nobody has a right to stay
  std::vector<Group> groups_;
  std::vector<uint32_t> free_;
  std::vector<uint32_t> moved_;  // slots that went to another group
  std::vector<Proposal> proposals_;
};

ExchangePlanner::ExchangePlanner(ModelShape shape, std::span<const uint32_t> experts)
    : shape_(shape),
      absent_(std::size_t{shape.layers} * shape.experts, State::kAbsent),
      may_go_at_(absent_.size()),
      held_(shape.layers) {
  for (uint32_t layer = 0; layer < shape.layers; ++layer) {
    experts_total_ += experts[layer];
    const auto begin = absent_.begin() + static_cast<std::ptrdiff_t>(layer) * shape.experts;
    std::fill(begin + experts[layer], begin + shape.experts, State::kPresent);
  }
}

std::vector<Proposal> ExchangePlanner::plan(const PlanInput& input, std::span<const SlotView> slots,
                                            uint32_t budget) {
  return Plan(*this, input, slots, budget).run();
}

}  // namespace strata::residency
