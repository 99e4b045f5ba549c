#include "services/simulation/simulate.h"

#include <algorithm>
#include <charconv>
#include <functional>

#include "services/residency/trace_profile.h"
#include "services/simulation/bounds.h"

namespace strata::simulation {
namespace {

using residency::PolicyOptions;
using residency::RoutingTrace;

ReplayResult difference(const ReplayResult& after, const ReplayResult& before) {
  ReplayResult result = after;
  result.decode_hits -= before.decode_hits;
  result.decode_uses -= before.decode_uses;
  result.prefill_hits -= before.prefill_hits;
  result.prefill_uses -= before.prefill_uses;
  result.windows -= before.windows;
  result.exchanges -= before.exchanges;
  result.bytes -= before.bytes;
  return result;
}

bool generates(const Conversation& conversation) {
  return std::ranges::find(conversation.roles, residency::TokenRole::kGenerated) != conversation.roles.end();
}

// What does not depend on the policy, and is computed once.
class Subject {
 public:
  Subject(const NamedTrace& traces, const SimulateOptions& options) : traces_(traces), options_(options) {
    const bool others = options.knowledge == Knowledge::kOthers;
    for (std::size_t i = 0; i < (others ? trace().conversations.size() : 1); ++i) {
      residency::Profile profile = options.profile;
      if (others) profile = residency::profile_of(trace(), i);
      if (options.knowledge == Knowledge::kNothing) profile = {};
      profiles_.push_back(std::move(profile));
    }
  }

  const RoutingTrace& trace() const { return traces_.trace; }

  Result<Replay> make_replay(const std::string& policy_name, uint32_t slots, std::size_t conversation) const {
    const residency::Profile& profile = profiles_.size() == 1 ? profiles_.front() : profiles_[conversation];
    PolicyOptions policy{
        .shape = {trace().layers, trace().experts}, .slots = slots, .decay_tokens = options_.decay_tokens};
    if (profile.tokens > 0) policy.profile = profile.shares();
    policy.topics = profile.topics;
    TRY(auto made, residency::make_policy(policy_name, policy));
    ReplayOptions replay = options_.replay;
    replay.slots = slots;
    return Replay(trace(), std::move(made), replay);
  }

  // One row for each conversation with generated tokens, without the policy's results.
  std::vector<ConversationRow> bounds(uint32_t slots) const {
    std::vector<ConversationRow> rows(trace().conversations.size());
    ReplayOptions replay = options_.replay;
    replay.slots = slots;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const Conversation& conversation = trace().conversations[i];
      rows[i] = {traces_.names[i],
                 {},
                 oracle_hit_rate(trace(), conversation, slots),
                 belady_hit_rate(trace(), conversation, slots),
                 foresight_hit_rate(trace(), conversation, replay)};
    }
    return rows;
  }

  Result<Row> run(const std::string& policy, const SlotBudget& budget,
                  const std::vector<ConversationRow>& bounds) const {
    Row row{policy, budget, {}};
    std::optional<Replay> replay;
    for (std::size_t i = 0; i < trace().conversations.size(); ++i) {
      if (!replay || !options_.continuous) {
        TRY(Replay fresh, make_replay(policy, budget.slots, i));
        replay.emplace(std::move(fresh));
      }
      const ReplayResult before = replay->result();
      replay->run(trace().conversations[i]);
      if (!generates(trace().conversations[i])) continue;
      row.conversations.push_back(bounds[i]);
      row.conversations.back().result = difference(replay->result(), before);
    }
    return row;
  }

 private:
  const NamedTrace& traces_;
  const SimulateOptions& options_;
  std::vector<residency::Profile> profiles_;  // of each conversation, or one for all
};

Status check(const NamedTrace& traces, const SimulateOptions& options) {
  const RoutingTrace& trace = traces.trace;
  if (std::ranges::none_of(trace.conversations, generates))
    return fail(Code::kInvalidArgument, "no conversation has a generated token");
  if (options.continuous && options.knowledge == Knowledge::kOthers && trace.conversations.size() > 1) {
    return fail(Code::kInvalidArgument,
                "one arena for all conversations would begin with what they teach: give a profile, or none");
  }
  const bool other_shape = options.profile.layers != trace.layers || options.profile.experts != trace.experts;
  if (options.knowledge == Knowledge::kProfile && other_shape) {
    return fail(Code::kInvalidArgument, "the profile has {} layers of {} experts, the traces have {} of {}",
                options.profile.layers, options.profile.experts, trace.layers, trace.experts);
  }
  return {};
}

double mean(const std::vector<ConversationRow>& rows,
            const std::function<double(const ConversationRow&)>& of) {
  double sum = 0;
  for (const ConversationRow& row : rows) sum += of(row);
  return rows.empty() ? 0 : sum / static_cast<double>(rows.size());
}

}  // namespace

Result<SlotBudget> parse_slot_budget(std::string_view text, uint64_t experts) {
  const bool percent = text.ends_with('%');
  const std::string_view digits = text.substr(0, text.size() - (percent ? 1 : 0));
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  const double slots = percent ? value / 100 * static_cast<double>(experts) : value;
  const bool right = error == std::errc() && end == digits.data() + digits.size() && slots >= 1 &&
                     slots <= static_cast<double>(experts);
  if (!right) {
    return fail(Code::kInvalidArgument,
                "a budget of '{}': expected slots or a percentage of the {} experts, e.g. 25%", text,
                experts);
  }
  return SlotBudget{std::string(text), static_cast<uint32_t>(slots)};
}

double Row::hit_rate() const {
  return mean(conversations, [](const auto& row) { return row.result.decode_rate(); });
}
double Row::prefill_hit_rate() const {
  std::vector<ConversationRow> with_prompt = conversations;
  std::erase_if(with_prompt, [](const auto& row) { return row.result.prefill_uses == 0; });
  return mean(with_prompt, [](const auto& row) { return row.result.prefill_rate(); });
}
double Row::oracle() const {
  return mean(conversations, [](const auto& row) { return row.oracle; });
}
double Row::belady() const {
  return mean(conversations, [](const auto& row) { return row.belady; });
}
double Row::foresight() const {
  return mean(conversations, [](const auto& row) { return row.foresight; });
}
double Row::least_of_oracle() const {
  double least = conversations.front().result.decode_rate() / conversations.front().oracle;
  for (const ConversationRow& row : conversations)
    least = std::min(least, row.result.decode_rate() / row.oracle);
  return least;
}
ReplayResult Row::total() const {
  ReplayResult sum;
  for (const ConversationRow& row : conversations) {
    sum.decode_hits += row.result.decode_hits;
    sum.decode_uses += row.result.decode_uses;
    sum.prefill_hits += row.result.prefill_hits;
    sum.prefill_uses += row.result.prefill_uses;
    sum.windows += row.result.windows;
    sum.exchanges += row.result.exchanges;
    sum.bytes += row.result.bytes;
  }
  return sum;
}

Result<std::vector<Row>> simulate(const NamedTrace& traces, const SimulateOptions& options) {
  TRY_OK(check(traces, options));
  const Subject subject(traces, options);
  const auto policies = options.policies.empty() ? residency::policy_names() : options.policies;
  std::vector<Row> rows;
  for (const SlotBudget& budget : options.budgets) {
    const auto bounds = subject.bounds(budget.slots);
    for (const std::string& policy : policies) {
      TRY(Row row, subject.run(policy, budget, bounds));
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

}  // namespace strata::simulation
