#include "services/model/synthetic_routing.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <numeric>

#include "services/base/check.h"
#include "services/residency/trace.h"

namespace strata::model {
namespace {

constexpr uint64_t mix(uint64_t z) {  // splitmix64's finish
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

class Draws {
 public:
  Draws(uint64_t seed, uint64_t layer, uint64_t what)
      : state_(mix(seed + mix(layer * 0x9e3779b97f4a7c15u + mix(what)))) {}
  uint64_t next() { return mix(state_ += 0x9e3779b97f4a7c15u); }
  uint32_t below(uint32_t bound) { return static_cast<uint32_t>(((next() >> 32) * bound) >> 32); }

 private:
  uint64_t state_;
};

constexpr uint64_t kRankingDraws = uint64_t{1} << 62;  // streams of draws, apart from those of places
constexpr uint64_t kSwapDraws = uint64_t{1} << 63;
uint64_t place_draws(RoutingPlace place) { return uint64_t{place.sequence} << 28 ^ place.position; }

bool contains(std::span<const uint16_t> ids, uint32_t id) { return std::ranges::find(ids, id) != ids.end(); }

// The experts of one layer from the hottest to the coldest, as they stand after so many swaps. Swap j is the
// same whoever asks, and undoes itself, so a ranking can go forward and back.
class Ranking {
 public:
  Ranking(uint64_t seed, uint32_t layer, uint32_t experts) : seed_(seed), layer_(layer), order_(experts) {
    std::iota(order_.begin(), order_.end(), uint16_t{0});
    Draws draws(seed, layer, kRankingDraws);
    for (uint32_t i = experts; i > 1; --i) std::swap(order_[i - 1], order_[draws.below(i)]);
  }

  uint64_t swaps() const { return swaps_; }
  uint64_t distance(uint64_t swaps) const { return swaps > swaps_ ? swaps - swaps_ : swaps_ - swaps; }
  void go_to(uint64_t swaps) {
    while (swaps_ < swaps) swap(swaps_++);
    while (swaps_ > swaps) swap(--swaps_);
  }
  uint16_t operator[](uint32_t rank) const { return order_[rank]; }

 private:
  void swap(uint64_t number) {
    const auto half = static_cast<uint32_t>(order_.size() / 2);
    Draws draws(seed_, layer_, kSwapDraws | number);
    const uint32_t hot = draws.below(half);
    std::swap(order_[hot], order_[half + draws.below(static_cast<uint32_t>(order_.size()) - half)]);
  }

  uint64_t seed_;
  uint32_t layer_;
  uint64_t swaps_ = 0;
  std::vector<uint16_t> order_;
};

class DrawnRouting final : public RoutingOverride {
 public:
  DrawnRouting(const SyntheticRoutingSpec& spec, const RoutingShape& shape) : seed_(spec.seed) {
    for (uint32_t layer = 0; layer < shape.experts.size(); ++layer) {
      const uint32_t experts = shape.experts[layer];
      Layer& made = layers_.emplace_back();
      made.part_ends = {experts / 8, experts / 4, experts / 2, experts};
      made.swaps_per_step = spec.drift * made.part_ends[2];
      made.rankings.emplace_back(spec.seed, layer, experts);
    }
    const double shares[] = {spec.skew.eighth, spec.skew.quarter, spec.skew.half};
    for (std::size_t i = 0; i < thresholds_.size(); ++i)
      thresholds_[i] = static_cast<uint64_t>(shares[i] * 0x1p32);
  }

  void choose(uint32_t layer_index, RoutingPlace place, std::span<uint16_t> ids) override {
    Layer& layer = layers_[layer_index];
    CHECK(ids.size() <= layer.part_ends.back(), "{} of {} experts", ids.size(), layer.part_ends.back());
    const uint32_t steps = place.position / kDriftTokens;
    const Ranking& ranking = ranking_at(layer, static_cast<uint64_t>(steps * layer.swaps_per_step));
    Draws draws(seed_, layer_index, place_draws(place));
    std::array<uint32_t, kParts> taken{};
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const uint32_t part = part_with_room(layer, taken, draws.next() >> 32);
      const uint32_t begin = part == 0 ? 0 : layer.part_ends[part - 1];
      uint16_t id = 0;
      do {
        id = ranking[begin + draws.below(layer.part_ends[part] - begin)];
      } while (contains(ids.first(i), id));
      ids[i] = id;
      ++taken[part];
    }
  }

 private:
  static constexpr std::size_t kParts = 4;
  // Sequences at different positions each keep a ranking near theirs, so that none is walked far for each
  // token.
  static constexpr std::size_t kRankingsMax = 16;
  static constexpr uint64_t kWalkMax = 64;  // swaps; beyond it another ranking is worth its memory

  struct Layer {
    std::array<uint32_t, kParts> part_ends{};  // ranks
    double swaps_per_step = 0;
    std::vector<Ranking> rankings;
  };

  // The part that `draw` (below 2^32) means, or the next one that has an expert left: the colder ones first.
  uint32_t part_with_room(const Layer& layer, const std::array<uint32_t, kParts>& taken,
                          uint64_t draw) const {
    uint32_t part = 0;
    while (part < thresholds_.size() && draw >= thresholds_[part]) ++part;
    const auto size = [&](uint32_t p) { return layer.part_ends[p] - (p == 0 ? 0 : layer.part_ends[p - 1]); };
    while (taken[part] == size(part)) part = (part + 1) % kParts;
    return part;
  }

  static const Ranking& ranking_at(Layer& layer, uint64_t swaps) {
    const auto by_distance = [&](const Ranking& ranking) { return ranking.distance(swaps); };
    auto nearest = std::ranges::min_element(layer.rankings, {}, by_distance);
    if (nearest->distance(swaps) > kWalkMax && layer.rankings.size() < kRankingsMax)
      nearest = layer.rankings.insert(layer.rankings.end(), Ranking(*nearest));
    nearest->go_to(swaps);
    return *nearest;
  }

  const uint64_t seed_;
  std::array<uint64_t, kParts - 1> thresholds_{};  // of 2^32
  std::vector<Layer> layers_;
};

class ReplayedRouting final : public RoutingOverride {
 public:
  ReplayedRouting(residency::RoutingTrace trace, const SyntheticRoutingSpec& spec, const RoutingShape& shape)
      : trace_(std::move(trace)), seed_(spec.seed), experts_(shape.experts) {}

  void choose(uint32_t layer, RoutingPlace place, std::span<uint16_t> ids) override {
    const residency::RoutingTrace::Conversation& conversation =
        trace_.conversations[place.sequence % trace_.conversations.size()];
    const uint32_t stretch = experts_[layer] / trace_.experts;
    Draws draws(seed_, layer, place_draws(place));
    std::size_t filled = 0;
    for (std::size_t ahead = 0; ahead < conversation.tokens.size() && filled < ids.size(); ++ahead) {
      const std::size_t token = (place.position + ahead) % conversation.tokens.size();
      for (const uint16_t recorded : trace_.picks(conversation, token, layer % trace_.layers)) {
        const uint32_t id = recorded * stretch + (stretch > 1 ? draws.below(stretch) : 0);
        if (filled == ids.size() || contains(ids.first(filled), id)) continue;
        ids[filled++] = static_cast<uint16_t>(id);
      }
    }
    for (uint16_t id = 0; filled < ids.size(); ++id)  // a conversation that uses fewer experts than a token
      if (!contains(ids.first(filled), id)) ids[filled++] = id;
  }

 private:
  const residency::RoutingTrace trace_;
  const uint64_t seed_;
  const std::vector<uint32_t> experts_;
};

template <class Number>
bool read_number(std::string_view text, Number& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

Status read_skew(std::string_view text, RoutingSkew& skew) {
  double* const shares[] = {&skew.eighth, &skew.quarter, &skew.half};
  double least = 0;
  std::string_view rest = text;
  for (std::size_t i = 0; i < std::size(shares); ++i) {
    const std::size_t slash = i + 1 < std::size(shares) ? rest.find('/') : rest.size();
    const bool right = slash != std::string_view::npos && read_number(rest.substr(0, slash), *shares[i]) &&
                       *shares[i] >= least && *shares[i] <= 1;
    if (!right) {
      return fail(Code::kInvalidArgument,
                  "skew={}: expected three shares from 0 to 1, none less than the one before, e.g. "
                  "skew=0.59/0.79/0.95",
                  text);
    }
    least = *shares[i];
    rest.remove_prefix(std::min(slash + 1, rest.size()));
  }
  return {};
}

Status read_part(std::string_view part, SyntheticRoutingSpec& spec) {
  const auto value_of = [&](std::string_view key) { return part.substr(key.size()); };
  if (part == "mild") {
    spec.skew = RoutingSkew();
  } else if (part == "strong") {
    spec.skew = {.eighth = 0.80, .quarter = 0.93, .half = 0.99};
  } else if (part == "uniform") {
    spec.skew = {.eighth = 0.125, .quarter = 0.25, .half = 0.5};
  } else if (part.starts_with("skew=")) {
    return read_skew(value_of("skew="), spec.skew);
  } else if (part.starts_with("drift=")) {
    if (!read_number(value_of("drift="), spec.drift) || !(spec.drift >= 0) || spec.drift > 1)
      return fail(Code::kInvalidArgument, "{}: expected a share from 0 to 1", part);
  } else if (part.starts_with("seed=")) {
    if (!read_number(value_of("seed="), spec.seed))
      return fail(Code::kInvalidArgument, "{}: expected a whole number", part);
  } else {
    return fail(Code::kInvalidArgument,
                "'{}': expected mild, strong, uniform, skew=A/B/C, drift=SHARE, seed=NUMBER or trace:FILE",
                part);
  }
  return {};
}

}  // namespace

Result<SyntheticRoutingSpec> parse_synthetic_routing(std::string_view text) {
  constexpr std::string_view kTrace = "trace:";
  SyntheticRoutingSpec spec;
  if (text.starts_with(kTrace)) {
    spec.trace = text.substr(kTrace.size());
    if (spec.trace.empty()) return fail(Code::kInvalidArgument, "trace: names no file");
    return spec;
  }
  for (bool more = true; more;) {
    const std::size_t comma = text.find(',');
    TRY_OK(read_part(text.substr(0, comma), spec));
    more = comma != std::string_view::npos;
    if (more) text.remove_prefix(comma + 1);
  }
  return spec;
}

Result<std::unique_ptr<RoutingOverride>> make_synthetic_routing(const SyntheticRoutingSpec& spec,
                                                                const RoutingShape& shape) {
  if (spec.trace.empty()) return std::make_unique<DrawnRouting>(spec, shape);
  TRY(residency::RoutingTrace trace, residency::read_routing_trace(spec.trace));
  const uint32_t least = std::ranges::min(shape.experts);
  if (trace.experts > least) {
    return fail(Code::kInvalidArgument, "{}: is of {} experts a layer, the model has {}", spec.trace,
                trace.experts, least);
  }
  return std::make_unique<ReplayedRouting>(std::move(trace), spec, shape);
}

}  // namespace strata::model
