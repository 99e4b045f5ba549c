#include "services/simulation/generate.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <span>

#include "services/base/limits.h"

namespace strata::simulation {
namespace {

using residency::RoutingTrace;
using residency::TokenRole;

constexpr uint32_t kDriftTokens = 64;
constexpr uint32_t kTokensMax = 1 << 24;          // of a conversation
constexpr uint64_t kGeneratedPicksMax = 1 << 29;  // two bytes each

class Random {  // splitmix64
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  double unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  uint32_t below(uint32_t bound) { return static_cast<uint32_t>(((next() >> 32) * bound) >> 32); }

 private:
  uint64_t state_;
};

class Generator {
 public:
  explicit Generator(const GenerateSpec& spec) : spec_(spec), random_(spec.seed) {
    double sum = 0;
    for (uint32_t rank = 0; rank < spec.experts; ++rank)
      cumulative_.push_back(sum += std::pow(rank + 1.0, -spec.skew));
    for (double& share : cumulative_) share /= sum;
    rankings_.resize(std::size_t{spec.topics} * spec.layers);
    for (auto& ranking : rankings_) {
      ranking.resize(spec.experts);
      std::iota(ranking.begin(), ranking.end(), uint16_t{0});
      for (uint32_t i = spec.experts; i > 1; --i) std::swap(ranking[i - 1], ranking[random_.below(i)]);
    }
  }

  RoutingTrace run() {
    RoutingTrace trace{
        .layers = spec_.layers, .experts = spec_.experts, .used = spec_.used, .conversations = {}};
    for (uint32_t i = 0; i < spec_.conversations; ++i) trace.conversations.push_back(conversation(i));
    return trace;
  }

 private:
  RoutingTrace::Conversation conversation(uint32_t number) {
    RoutingTrace::Conversation made;
    uint32_t topic = number % spec_.topics;
    last_.clear();
    for (uint32_t token = 0; token < spec_.tokens; ++token) {
      const bool switches = token > 0 && spec_.switch_tokens > 0 && token % spec_.switch_tokens == 0;
      if (switches) topic = (topic + 1) % spec_.topics;
      if (switches || token == 0) {
        for (uint32_t i = 0; i < spec_.prompt_tokens; ++i) add_token(made, topic, TokenRole::kPrompt);
      }
      add_token(made, topic, TokenRole::kGenerated);
    }
    return made;
  }

  void add_token(RoutingTrace::Conversation& made, uint32_t topic, TokenRole role) {
    const auto number = static_cast<int32_t>(made.tokens.size());
    if (number % kDriftTokens == kDriftTokens - 1) drift();
    std::vector<uint16_t> picks;
    for (uint32_t layer = 0; layer < spec_.layers; ++layer) pick(topic, layer, picks);
    made.tokens.push_back(number);
    made.roles.push_back(role);
    made.domains.push_back(static_cast<uint8_t>(topic));
    made.picks.insert(made.picks.end(), picks.begin(), picks.end());
    last_ = std::move(picks);
  }

  void pick(uint32_t topic, uint32_t layer, std::vector<uint16_t>& picks) {
    const auto& ranking = rankings_[std::size_t{topic} * spec_.layers + layer];
    const std::size_t begin = picks.size();
    const auto taken = [&](uint16_t id) {
      return std::find(picks.begin() + static_cast<std::ptrdiff_t>(begin), picks.end(), id) != picks.end();
    };
    while (picks.size() < begin + spec_.used) {
      const bool repeats = !last_.empty() && random_.unit() < spec_.repeat;
      if (repeats) {
        const uint16_t id = last_[begin + random_.below(spec_.used)];
        if (!taken(id)) picks.push_back(id);
        continue;
      }
      uint32_t at = rank();
      while (taken(ranking[at])) at = (at + 1) % spec_.experts;  // the next colder one
      picks.push_back(ranking[at]);
    }
  }

  uint32_t rank() {
    const auto at = std::ranges::upper_bound(cumulative_, random_.unit());
    return std::min(static_cast<uint32_t>(at - cumulative_.begin()), spec_.experts - 1);
  }

  // Swaps places of so many experts of each ranking, hot ones as likely as cold ones.
  void drift() {
    for (auto& ranking : rankings_) {
      drifted_ += spec_.drift * spec_.experts / 2;
      for (; drifted_ >= 1; --drifted_)
        std::swap(ranking[random_.below(spec_.experts)], ranking[random_.below(spec_.experts)]);
    }
  }

  const GenerateSpec spec_;
  Random random_;
  std::vector<double> cumulative_;               // by rank
  std::vector<std::vector<uint16_t>> rankings_;  // (topics, layers): experts from the hottest on
  std::vector<uint16_t> last_;                   // picks of the token before
  double drifted_ = 0;                           // swaps still owed
};

template <class Number>
bool read_number(std::string_view text, Number min, Number max, Number& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= min && value <= max;
}

struct Field {
  std::string_view key;
  uint32_t GenerateSpec::* count;
  uint32_t min, max;
};

constexpr Field kCounts[] = {
    {"layers", &GenerateSpec::layers, 1, kLayersMax},
    {"experts", &GenerateSpec::experts, 1, kExpertsMax},
    {"used", &GenerateSpec::used, 1, kExpertsPerTokenMax},
    {"tokens", &GenerateSpec::tokens, 1, kTokensMax},
    {"conversations", &GenerateSpec::conversations, 1, 1024},
    {"topics", &GenerateSpec::topics, 1, 256},
    {"switch", &GenerateSpec::switch_tokens, 0, kTokensMax},
    {"prompt", &GenerateSpec::prompt_tokens, 0, 8192},
};

struct Share {
  std::string_view key;
  double GenerateSpec::* share;
  double max;
};

// A share of repeats of 1 would never find another expert.
constexpr Share kShares[] = {{"skew", &GenerateSpec::skew, 4},
                             {"repeat", &GenerateSpec::repeat, 0.95},
                             {"drift", &GenerateSpec::drift, 1}};

Status set_preset(std::string_view name, GenerateSpec& spec) {
  if (name == "mild") {
    spec.skew = 0.6;
  } else if (name == "strong") {
    spec.skew = 1.2;
  } else if (name == "drift") {
    spec.drift = 0.05;
  } else if (name == "alternating") {
    spec.topics = 4;
    spec.switch_tokens = 256;
  } else {
    return fail(Code::kInvalidArgument, "'{}': expected mild, strong, drift, alternating or KEY=VALUE", name);
  }
  return {};
}

Status set_field(std::string_view key, std::string_view value, GenerateSpec& spec) {
  for (const Field& field : kCounts) {
    if (key != field.key) continue;
    if (read_number(value, field.min, field.max, spec.*field.count)) return {};
    return fail(Code::kInvalidArgument, "{}={}: expected {} to {}", key, value, field.min, field.max);
  }
  for (const Share& field : kShares) {
    if (key != field.key) continue;
    if (read_number(value, 0.0, field.max, spec.*field.share)) return {};
    return fail(Code::kInvalidArgument, "{}={}: expected 0 to {}", key, value, field.max);
  }
  if (key == "seed") {
    if (read_number(value, uint64_t{0}, UINT64_MAX, spec.seed)) return {};
    return fail(Code::kInvalidArgument, "seed={}: expected a number", value);
  }
  return fail(
      Code::kInvalidArgument,
      "'{}' is no property of generated routing, expected layers, experts, used, tokens, conversations, "
      "topics, switch, prompt, skew, repeat, drift or seed",
      key);
}

}  // namespace

Result<GenerateSpec> parse_generate_spec(std::string_view text) {
  GenerateSpec spec;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    const std::size_t equals = part.find('=');
    TRY_OK(equals == std::string_view::npos
               ? set_preset(part, spec)
               : set_field(part.substr(0, equals), part.substr(equals + 1), spec));
  }
  if (spec.used > spec.experts) {
    return fail(Code::kInvalidArgument, "used={}: a layer has {} experts", spec.used, spec.experts);
  }
  const uint64_t picks = uint64_t{spec.tokens} * spec.conversations * spec.layers * spec.used;
  if (picks > kGeneratedPicksMax) {
    return fail(Code::kInvalidArgument,
                "{} conversations of {} tokens with {} layers, {} experts used: {} uses, expected at most {}",
                spec.conversations, spec.tokens, spec.layers, spec.used, picks, kGeneratedPicksMax);
  }
  return spec;
}

RoutingTrace generate(const GenerateSpec& spec) { return Generator(spec).run(); }

}  // namespace strata::simulation
