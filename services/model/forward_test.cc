// What a window may do to its rows: nothing. Needs the tiny golden model, whose second form has quantized
// weights.
#include "services/model/forward.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "services/model/golden_fixture.h"
#include "services/model/sparse_attention.h"

namespace strata::model {
namespace {

using quant::Numerics;
using ::testing::HasSubstr;

constexpr uint32_t kCapacity = 64;
constexpr uint32_t kRowsMax = 48;

std::vector<int32_t> some_tokens(uint32_t count, uint32_t seed) {
  std::vector<int32_t> tokens(count);
  for (uint32_t i = 0; i < count; ++i)
    tokens[i] = static_cast<int32_t>((seed * 7919 + i * i * 31 + i * 101) % 456);
  return tokens;
}

class ForwardTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    const auto folder = tests::tiny_folder();
    weights_ = golden::load(folder / golden::gguf_name(golden::read_index(folder), "-00001-of-"));
  }
  static void TearDownTestSuite() { weights_.reset(); }
  void SetUp() override { ASSERT_NE(weights_, nullptr); }

  std::vector<float> alone(std::span<const int32_t> tokens, uint32_t threads = 1) const {
    return golden::Runner(*weights_, Numerics::kReproducible, kCapacity, kRowsMax, threads).run(tokens);
  }
  std::span<const float> row(std::span<const float> logits, std::size_t index) const {
    return logits.subspan(index * weights_->config.vocab, weights_->config.vocab);
  }

  static std::shared_ptr<const ModelWeights> weights_;
};
std::shared_ptr<const ModelWeights> ForwardTest::weights_;

// Three sequences at different positions, in windows of changing company.
TEST_F(ForwardTest, ARowHasTheSameBitsWhateverSharesItsWindow) {
  const std::vector<std::vector<int32_t>> tokens = {some_tokens(40, 1), some_tokens(29, 2),
                                                    some_tokens(33, 3)};
  Parallel parallel(1);
  Forward forward(*weights_, Numerics::kReproducible, kRowsMax, parallel);
  LocalExperts experts(*weights_, Numerics::kReproducible);
  std::vector<SequenceState> states(tokens.size(), SequenceState(weights_->config, kCapacity));
  std::vector<std::vector<float>> logits(tokens.size());
  std::vector<std::size_t> next(tokens.size(), 0);
  for (std::size_t window = 0;
       next[0] < tokens[0].size() || next[1] < tokens[1].size() || next[2] < tokens[2].size(); ++window) {
    std::vector<WindowRow> rows;
    std::vector<std::size_t> owners;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const std::size_t s = (i + window) % tokens.size();  // another order each time
      const std::size_t count = std::min((window * 3 + s * 5) % 7, tokens[s].size() - next[s]);
      for (std::size_t j = 0; j < count; ++j) {
        rows.push_back({.sequence = &states[s], .token = tokens[s][next[s]++], .want_logits = true});
        owners.push_back(s);
      }
    }
    std::vector<float> out(rows.size() * weights_->config.vocab);
    ASSERT_TRUE(forward.run(rows, experts, out).ok());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const auto found = row(out, i);
      logits[owners[i]].insert(logits[owners[i]].end(), found.begin(), found.end());
    }
  }
  for (std::size_t s = 0; s < tokens.size(); ++s) {
    EXPECT_EQ(logits[s], alone(tokens[s])) << "sequence " << s;
    EXPECT_EQ(states[s].position(), tokens[s].size());
  }
}

TEST_F(ForwardTest, AnyNumberOfThreadsGivesTheSameBits) {
  const auto tokens = some_tokens(40, 4);
  const auto expected = alone(tokens);
  for (const uint32_t threads : {2u, 3u})
    EXPECT_EQ(alone(tokens, threads), expected) << threads << " threads";
}

TEST_F(ForwardTest, AStateThatWasResetIsLikeNew) {
  golden::Runner runner(*weights_, Numerics::kReproducible, kCapacity, kRowsMax);
  runner.run(some_tokens(30, 5));
  runner.state().reset();
  const auto tokens = some_tokens(25, 6);
  EXPECT_EQ(runner.run(tokens), alone(tokens));
}

TEST_F(ForwardTest, GivesLogitsOnlyForTheRowsThatWantThem) {
  const auto tokens = some_tokens(12, 7);
  const auto expected = alone(tokens);
  Parallel parallel(1);
  Forward forward(*weights_, Numerics::kReproducible, kRowsMax, parallel);
  LocalExperts experts(*weights_, Numerics::kReproducible);
  SequenceState state(weights_->config, kCapacity);
  std::vector<WindowRow> rows;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    rows.push_back({.sequence = &state, .token = tokens[i], .want_logits = i == 3 || i == 11});
  }
  std::vector<float> out(2 * weights_->config.vocab);
  ASSERT_TRUE(forward.run(rows, experts, out).ok());
  EXPECT_TRUE(std::ranges::equal(row(out, 0), row(expected, 3)));
  EXPECT_TRUE(std::ranges::equal(row(out, 1), row(expected, 11)));
}

// Until the function returns, keys, values and block keys of what was read before may be anything.
TEST_F(ForwardTest, TouchesPagesOnlyBehindTheFunctionThatBringsThem) {
  const auto tokens = some_tokens(40, 13);
  constexpr uint32_t kBefore = 26;
  Parallel parallel(2);
  Forward forward(*weights_, Numerics::kReproducible, kRowsMax, parallel);
  LocalExperts experts(*weights_, Numerics::kReproducible);
  SequenceState state(weights_->config, kCapacity);
  const auto rows_of = [&](std::span<const int32_t> some) {
    std::vector<WindowRow> rows;
    for (const int32_t token : some) rows.push_back({.sequence = &state, .token = token});
    rows.back().want_logits = true;
    return rows;
  };
  std::vector<float> logits(weights_->config.vocab);
  ASSERT_TRUE(forward.run(rows_of(std::span(tokens).first(kBefore)), experts, logits).ok());

  // Some bytes that no float of a state is made of, and that no write may meet before its time.
  constexpr float kNotThere = -1.25e30f;
  const std::vector<AttentionState> pages = state.attention;
  const auto not_there = [&](const std::vector<float>& values) {
    return std::ranges::all_of(values, [](float value) { return value == kNotThere; });
  };
  for (AttentionState& layer : state.attention) {
    for (std::vector<float>* part : {&layer.k, &layer.v, &layer.pooled}) std::ranges::fill(*part, kNotThere);
  }
  std::vector<uint32_t> layers_done;
  ForwardObserver observer;
  observer.streams = [&](uint32_t layer, uint32_t, const float*) { layers_done.push_back(layer); };
  forward.observe(observer);
  uint32_t calls = 0;
  const auto first_attention =
      static_cast<std::size_t>(std::ranges::find(weights_->config.layer_kinds, LayerKind::kAttention) -
                               weights_->config.layer_kinds.begin());
  ASSERT_GT(first_attention, 0u) << "the model has something to do in front of it";
  ASSERT_TRUE(forward
                  .run(rows_of(std::span(tokens).subspan(kBefore)), experts, logits, nullptr,
                       [&] {
                         ++calls;
                         EXPECT_EQ(layers_done.size(), first_attention);
                         for (const AttentionState& layer : state.attention)
                           EXPECT_TRUE(not_there(layer.k) && not_there(layer.v) && not_there(layer.pooled));
                         state.attention = pages;
                       })
                  .ok());
  EXPECT_EQ(calls, 1u);
  EXPECT_TRUE(std::ranges::equal(logits, row(alone(tokens), tokens.size() - 1)));

  // Nothing is read, so nothing is waited for.
  const auto must_not = [&] { ++calls; };
  EXPECT_TRUE(forward.run({}, experts, {}, nullptr, must_not).ok());
  const WindowRow bad{.sequence = &state, .token = -1};
  EXPECT_FALSE(forward.run({&bad, 1}, experts, {}, nullptr, must_not).ok());
  EXPECT_EQ(calls, 1u);
}

// A FixedState and its memory, with the sizes of `state`.
struct OwnFixedState {
  explicit OwnFixedState(const SequenceState& state) : copy(state) {
    for (std::size_t layer = 0; layer < copy.delta.size(); ++layer) {
      places.layers.push_back({.s = copy.delta[layer].s.data(),
                               .conv = copy.delta[layer].conv.data(),
                               .raw = copy.attention[layer].raw.data()});
    }
    places.ngram_conv = copy.ngram_conv.data();
    places.ngram_context = copy.ngram_context.data();
  }
  SequenceState copy;
  FixedState places;
};

void expect_same_fixed_part(const SequenceState& one, const SequenceState& other) {
  for (std::size_t layer = 0; layer < one.delta.size(); ++layer) {
    EXPECT_EQ(one.delta[layer].s, other.delta[layer].s) << "layer " << layer;
    EXPECT_EQ(one.delta[layer].conv, other.delta[layer].conv) << "layer " << layer;
    EXPECT_EQ(one.attention[layer].raw, other.attention[layer].raw) << "layer " << layer;
  }
  EXPECT_EQ(one.ngram_conv, other.ngram_conv);
  EXPECT_EQ(one.ngram_context, other.ngram_context);
}

// Against a state that ends behind the row. Another sequence in the window is captured, too, and the cuts
// meet the ends of blocks, of histories and of the window.
TEST_F(ForwardTest, CapturesStatesWithinAWindow) {
  const auto tokens = some_tokens(40, 11), others = some_tokens(7, 12);
  for (const uint32_t threads : {1u, 3u}) {
    Parallel parallel(threads);
    Forward forward(*weights_, Numerics::kReproducible, kRowsMax, parallel);
    LocalExperts experts(*weights_, Numerics::kReproducible);
    const auto read = [&](SequenceState& state, std::span<const int32_t> some) {
      std::vector<WindowRow> rows;
      for (const int32_t token : some) rows.push_back({.sequence = &state, .token = token});
      ASSERT_TRUE(forward.run(rows, experts, {}).ok());
    };
    SequenceState state(weights_->config, kCapacity), other(weights_->config, kCapacity);
    read(state, std::span(tokens).first(3));
    const std::vector<uint32_t> cuts = {3,  4,  5, 8,
                                        19, 31, 40};  // tokens in front of each; the first is read before
    std::vector<OwnFixedState> captured;
    captured.reserve(cuts.size());  // their places stay
    for (std::size_t i = 0; i < cuts.size(); ++i) captured.emplace_back(state);
    OwnFixedState of_other(other);
    std::vector<WindowRow> rows;
    for (uint32_t i = 0; i < others.size(); ++i)
      rows.push_back(
          {.sequence = &other, .token = others[i], .capture = i == 4 ? &of_other.places : nullptr});
    for (uint32_t i = 3; i < tokens.size(); ++i) rows.push_back({.sequence = &state, .token = tokens[i]});
    for (std::size_t i = 1; i < cuts.size(); ++i)
      rows[others.size() + cuts[i] - 3 - 1].capture = &captured[i].places;
    ASSERT_TRUE(forward.run(rows, experts, {}).ok());
    for (std::size_t i = 1; i < cuts.size(); ++i) {
      SCOPED_TRACE(cuts[i]);
      SequenceState expected(weights_->config, kCapacity);
      // Cut alike: keys in a tail that no longer count are those of the cut before.
      uint32_t from = 0;
      for (const uint32_t to : cuts) {
        if (to > cuts[i]) break;
        read(expected, std::span(tokens).subspan(from, to - from));
        from = to;
      }
      expect_same_fixed_part(captured[i].copy, expected);
    }
    expect_same_fixed_part(captured.back().copy, state);
    SequenceState expected(weights_->config, kCapacity);
    read(expected, std::span(others).first(5));
    expect_same_fixed_part(of_other.copy, expected);
    read(expected, std::span(others).subspan(5));
    expect_same_fixed_part(other, expected);
  }
}

// An override that says what the router says, or something else.
class ListedRouting final : public RoutingOverride {
 public:
  void choose(uint32_t layer, RoutingPlace place, std::span<uint16_t> ids) override {
    places.push_back(place);
    const auto& row = listed.at(layer).at(place.position);
    std::ranges::copy(row, ids.begin());
  }
  std::vector<std::vector<std::vector<uint16_t>>> listed;  // [layer][position]
  std::vector<RoutingPlace> places;
};

TEST_F(ForwardTest, AnOverrideTakesTheRoutersPlace) {
  const auto tokens = some_tokens(20, 10);
  const uint32_t used = weights_->config.experts_used;
  Parallel parallel(2);
  Forward forward(*weights_, Numerics::kReproducible, kRowsMax, parallel);
  LocalExperts experts(*weights_, Numerics::kReproducible);
  ListedRouting routing;
  std::vector<std::vector<std::vector<uint16_t>>> seen;
  std::vector<float> seen_weights;
  forward.observe({.router =
                       [&](uint32_t, uint32_t rows, const uint16_t* ids, const float* weights) {
                         auto& layer = seen.emplace_back();
                         for (uint32_t i = 0; i < rows; ++i)
                           layer.emplace_back(ids + i * used, ids + (i + 1) * used);
                         seen_weights.assign(weights, weights + std::size_t{rows} * used);
                       },
                   .blocks = {},
                   .streams = {},
                   .ngram_rows = {},
                   .ngram_out = {}});
  const auto run = [&] {
    seen.clear();
    SequenceState state(weights_->config, kCapacity);
    std::vector<WindowRow> rows;
    for (const int32_t token : tokens)
      rows.push_back({.sequence = &state, .token = token, .want_logits = true, .routing_sequence = 77});
    std::vector<float> out(rows.size() * weights_->config.vocab);
    EXPECT_TRUE(forward.run(rows, experts, out).ok());
    return out;
  };
  const auto routed = run();
  const auto own = seen;
  forward.override_routing(&routing);
  routing.listed = own;
  EXPECT_EQ(run(), routed) << "the router's own choice gives the same bits";
  ASSERT_EQ(routing.places.size(), weights_->config.layers * tokens.size());
  EXPECT_EQ(routing.places[3].sequence, 77u);
  EXPECT_EQ(routing.places[3].position, 3u);
  for (auto& layer : routing.listed)
    for (auto& row : layer) std::iota(row.rbegin(), row.rend(), uint16_t{0});
  EXPECT_NE(run(), routed);
  EXPECT_EQ(seen, routing.listed);
  float sum = 0;
  for (uint32_t i = 0; i < used; ++i) sum += seen_weights[i];
  EXPECT_NEAR(sum, 1, 1e-6);
  forward.override_routing(nullptr);
  EXPECT_EQ(run(), routed);
}

TEST_F(ForwardTest, AFaultOfOneSequenceIsReportedAndStaysThere) {
  const auto tokens = some_tokens(6, 8);
  const auto expected = alone(tokens);
  Parallel parallel(1);
  Forward forward(*weights_, Numerics::kReproducible, kRowsMax, parallel);
  LocalExperts experts(*weights_, Numerics::kReproducible);
  SequenceState sound(weights_->config, kCapacity), broken(weights_->config, kCapacity);
  broken.delta[0].s[5] = std::numeric_limits<float>::quiet_NaN();
  std::vector<WindowRow> rows;
  for (const int32_t token : tokens)
    rows.push_back({.sequence = &sound, .token = token, .want_logits = true});
  for (const int32_t token : tokens)
    rows.push_back({.sequence = &broken, .token = token, .want_logits = token == tokens[2]});
  std::vector<float> out(rows.size() * weights_->config.vocab);
  int32_t bad_row = -1;
  ASSERT_TRUE(forward.run(rows, experts, out, &bad_row).ok());
  EXPECT_EQ(bad_row, 8);
  EXPECT_TRUE(std::ranges::equal(std::span<const float>(out).first(expected.size()), expected));
}

TEST_F(ForwardTest, RefusesBadRowsBeforeAnythingChanges) {
  Parallel parallel(1);
  Forward forward(*weights_, Numerics::kReproducible, kRowsMax, parallel);
  LocalExperts experts(*weights_, Numerics::kReproducible);
  SequenceState a(weights_->config, 4), b(weights_->config, 4);
  const auto run = [&](const std::vector<WindowRow>& rows, std::size_t logits = 0) {
    std::vector<float> out(logits);
    return forward.run(rows, experts, out);
  };
  const int32_t vocab = static_cast<int32_t>(weights_->config.vocab);
  EXPECT_EQ(run({{.sequence = nullptr}}).code(), Code::kInvalidArgument);
  EXPECT_EQ(run({{.sequence = &a, .token = -1}}).code(), Code::kInvalidArgument);
  EXPECT_THAT(run({{.sequence = &a, .token = vocab}}).message(), HasSubstr("vocabulary"));
  EXPECT_THAT(run({{.sequence = &a}, {.sequence = &b}, {.sequence = &a}}).message(),
              HasSubstr("consecutive"));
  EXPECT_EQ(run(std::vector<WindowRow>(kRowsMax + 1, {.sequence = &a})).code(), Code::kInvalidArgument);
  EXPECT_THAT(run({{.sequence = &a, .token = 1, .want_logits = true}}).message(), HasSubstr("logits"));
  const Status full = run(std::vector<WindowRow>(5, {.sequence = &a, .token = 1}));
  EXPECT_EQ(full.code(), Code::kOutOfRange);
  EXPECT_THAT(full.message(), HasSubstr("room for 4 tokens"));
  EXPECT_EQ(a.position(), 0u);
  EXPECT_EQ(a.delta[0].s, b.delta[0].s);

  EXPECT_TRUE(run(std::vector<WindowRow>(4, {.sequence = &a, .token = 1})).ok())
      << "the last place can be used";
  EXPECT_EQ(run({{.sequence = &a, .token = 1}}).code(), Code::kOutOfRange);
  EXPECT_TRUE(run({}).ok());
}

// A long window is attended in tiles of rows; the smallest possible ones against a single one.
TEST_F(ForwardTest, TilesOfRowsDoNotShowInTheAttention) {
  const ModelConfig& config = weights_->config;
  uint32_t layer = 0;
  while (config.layer_kinds[layer] != LayerKind::kAttention) ++layer;
  const Rope rope(config.rope);
  Parallel parallel(1);
  std::vector<float> values(std::size_t{kRowsMax} * config.hidden);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>((i * 7919) % 1009) * 0.002f - 1.0f;
  const auto attend = [&](std::size_t tile_floats) {
    SequenceState state(config, kCapacity);
    Window window;
    window.segments = {{.sequence = &state, .row_begin = 0, .row_count = kRowsMax, .position = 0}};
    window.turns.resize(std::size_t{kRowsMax} * 2 * rope.pairs());
    for (uint32_t row = 0; row < kRowsMax; ++row) {
      window.places.push_back({.segment = 0, .position = row});
      rope.turn_at(row, window.turns.data() + std::size_t{row} * 2 * rope.pairs());
    }
    SparseAttention attention(config, Numerics::kReproducible, kRowsMax, rope, parallel, tile_floats);
    quant::Activations input(values.data(), kRowsMax, config.hidden, config.hidden);
    std::vector<float> output(values.size());
    uint32_t observed = 0;
    attention.run(weights_->layers[layer].attention, layer, window, input, output.data(),
                  [&](uint32_t, uint32_t row, std::span<const uint32_t>) { EXPECT_EQ(row, observed++); });
    EXPECT_EQ(observed, kRowsMax);
    return output;
  };
  const auto whole = attend(SparseAttention::kTileFloats);
  EXPECT_EQ(attend(1), whole);
  EXPECT_EQ(attend(1000), whole);
}

TEST_F(ForwardTest, TellsWhereTheTimeWent) {
  golden::Runner runner(*weights_, Numerics::kReproducible, kCapacity, kRowsMax);
  runner.run(some_tokens(4, 9));
  const PhaseSeconds spent = runner.forward().take_phases();
  for (const double seconds : {spent.mixers, spent.attention, spent.delta_net, spent.ngram, spent.route,
                               spent.experts, spent.head}) {
    EXPECT_GT(seconds, 0);
  }
  EXPECT_EQ(runner.forward().take_phases().experts, 0);
}

}  // namespace
}  // namespace strata::model
