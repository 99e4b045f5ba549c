#include "services/cli/cross_validation.h"

#include <algorithm>
#include <boost/json.hpp>
#include <functional>
#include <numeric>

#include "services/cli/profile_build.h"
#include "services/cli/static_placement.h"
#include "services/config/property.h"

namespace strata::cli {

namespace json = boost::json;
using residency::Profile;
using residency::RoutingTrace;
using residency::TokenRole;

namespace {

Result<uint32_t> read_budget(const std::string& text, uint64_t experts) {
  config::PropertySet set;
  config::Property<config::Amount> amount{&set, "--budgets", "", {}, config::Amount::automatic()};
  const Status status = amount.parse(text);
  if (!status.ok() || amount().kind == config::Amount::Kind::kAuto)
    return fail(Code::kInvalidArgument, "--budgets: expected a number of slots or a percentage, got '{}'",
                text);
  return static_cast<uint32_t>(amount().of(experts, 0));
}

// The most uses that any `slots` experts carry, whichever layers they are of.
double oracle_rate(const Profile& own, uint32_t slots) {
  std::vector<uint64_t> counts = own.counts;
  const uint64_t all = std::accumulate(counts.begin(), counts.end(), uint64_t{0});
  const auto kept = static_cast<std::ptrdiff_t>(std::min<std::size_t>(slots, counts.size()));
  std::ranges::nth_element(counts, counts.begin() + kept, std::greater{});
  const uint64_t hits = std::accumulate(counts.begin(), counts.begin() + kept, uint64_t{0});
  return all == 0 ? 0 : static_cast<double>(hits) / static_cast<double>(all);
}

double first_seen_rate(const RoutingTrace& trace, const RoutingTrace::Conversation& conversation,
                       uint32_t layers, uint32_t slots) {
  std::vector<uint32_t> room(layers);
  for (uint32_t layer = 0; layer < layers; ++layer)
    room[layer] = slots / layers + (layer < slots % layers ? 1 : 0);
  std::vector<bool> resident(std::size_t{layers} * trace.experts);
  uint64_t hits = 0, uses = 0;
  for (std::size_t token = 0; token < conversation.tokens.size(); ++token) {
    for (uint32_t layer = 0; layer < layers; ++layer) {
      for (const uint16_t expert : trace.picks(conversation, token, layer)) {
        const std::size_t at = std::size_t{layer} * trace.experts + expert;
        if (conversation.roles[token] == TokenRole::kGenerated) {
          ++uses;
          hits += resident[at] ? 1 : 0;
        }
        if (resident[at] || room[layer] == 0) continue;
        resident[at] = true;
        --room[layer];
      }
    }
  }
  return uses == 0 ? 0 : static_cast<double>(hits) / static_cast<double>(uses);
}

template <class Combine>
PlacementRates combined(const std::vector<PlacementRates>& all, PlacementRates result, Combine combine) {
  for (const PlacementRates& each : all) {
    result.profile = combine(result.profile, each.profile);
    result.first_seen = combine(result.first_seen, each.first_seen);
    result.oracle = combine(result.oracle, each.oracle);
  }
  return result;
}

}  // namespace

PlacementRates BudgetRates::mean() const {
  PlacementRates sum = combined(conversations, {}, std::plus<double>());
  const auto count = static_cast<double>(conversations.size());
  return {sum.profile / count, sum.first_seen / count, sum.oracle / count};
}

PlacementRates BudgetRates::worst() const {
  return combined(conversations, conversations.front(), [](double a, double b) { return std::min(a, b); });
}

Result<std::vector<BudgetRates>> cross_validate(const RoutingTrace& trace,
                                                const std::vector<std::string>& budgets, uint32_t layers) {
  TRY(const Profile all, profile_of(trace, layers));
  struct Judged {
    const RoutingTrace::Conversation* conversation;
    Profile own;
  };
  std::vector<Judged> judged;
  for (const RoutingTrace::Conversation& conversation : trace.conversations) {
    Profile own = profile_of(trace, conversation, all.layers);
    if (own.tokens > 0) judged.push_back({&conversation, std::move(own)});
  }
  if (judged.size() < 2) {
    return fail(Code::kFailedPrecondition,
                "cross-validation needs at least two conversations with generated tokens, the trace has {}",
                judged.size());
  }
  std::vector<BudgetRates> rates;
  for (const std::string& budget : budgets) {
    BudgetRates& at = rates.emplace_back(BudgetRates{.budget = budget, .slots = 0, .conversations = {}});
    TRY(at.slots, read_budget(budget, all.counts.size()));
    for (const Judged& each : judged) {
      Profile others = all;
      others.tokens -= each.own.tokens;
      for (std::size_t i = 0; i < others.counts.size(); ++i) others.counts[i] -= each.own.counts[i];
      at.conversations.push_back(
          {.profile = hit_rate(place_by_profile(others, at.slots), each.own.counts),
           .first_seen = first_seen_rate(trace, *each.conversation, all.layers, at.slots),
           .oracle = oracle_rate(each.own, at.slots)});
    }
  }
  return rates;
}

std::string cross_validation_text(const std::vector<BudgetRates>& budgets) {
  std::string text = "budget    slots  profile  (worst)  first seen   oracle\n";
  for (const BudgetRates& at : budgets) {
    const PlacementRates mean = at.mean();
    text +=
        fmt::format("{:<8} {:>6}  {:>6.1f}%  {:>6.1f}%  {:>9.1f}%  {:>6.1f}%\n", at.budget, at.slots,
                    100 * mean.profile, 100 * at.worst().profile, 100 * mean.first_seen, 100 * mean.oracle);
  }
  return text;
}

std::string cross_validation_json(const std::vector<BudgetRates>& budgets) {
  const auto object = [](const PlacementRates& rates) {
    return json::object{
        {"profile", rates.profile}, {"first_seen", rates.first_seen}, {"oracle", rates.oracle}};
  };
  json::array list;
  for (const BudgetRates& at : budgets) {
    json::array conversations;
    for (const PlacementRates& each : at.conversations) conversations.push_back(object(each));
    list.push_back({{"budget", at.budget},
                    {"slots", at.slots},
                    {"mean", object(at.mean())},
                    {"worst", object(at.worst())},
                    {"conversations", std::move(conversations)}});
  }
  return json::serialize(list);
}

}  // namespace strata::cli
