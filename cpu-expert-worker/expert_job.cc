#include "cpu-expert-worker/expert_job.h"

#include <algorithm>

#include "services/base/check.h"
#include "services/base/limits.h"

namespace strata::cpu_expert_worker {
namespace {

// What reading an expert's weights costs, in tokens: with one token an expert is bound by reading and
// unpacking its weights, every further token meets weights that are unpacked. An estimate, and need not be
// more: it only decides which experts are large beside the others of a request.
constexpr uint32_t kWeightsCost = 3;
// The kernels take so many rows at a time.
constexpr uint32_t kRowsAligned = 16;
// Of one expert, so that any number of experts can be numbered in units.
constexpr uint32_t kExpertUnitsMax = 4096;
static_assert(kExpertUnitsMax * kExpertsMax <= kUnitsMax);

uint64_t expert_bytes(const model::LayerExperts& layer) {
  return layer.gate_expert_bytes + layer.up_expert_bytes + layer.down_expert_bytes;
}

bool needs_q8(const model::LayerExperts& layer, quant::Numerics numerics) {
  return quant::needs_q8(layer.gate.type, numerics) || quant::needs_q8(layer.up.type, numerics);
}

// Float rows with room for their 8-bit form, where some layer takes both.
quant::Activations float_input(std::span<const model::LayerExperts> layers,
                               const shm::BoardGeometry& geometry) {
  // One row of zeros, as often as there are tokens.
  const std::vector<float> zeros(geometry.hidden);
  quant::Activations input(zeros.data(), geometry.tokens_max, geometry.hidden, 0);
  const auto takes_both = [](const model::LayerExperts& layer) {
    constexpr auto kNumerics = quant::Numerics::kReproducible;
    return needs_q8(layer, kNumerics) && !expert::takes_q8_input(layer.expert(0), kNumerics);
  };
  if (std::ranges::any_of(layers, takes_both)) input.ensure_q8();
  input.rebind(nullptr, 0, geometry.hidden, 0);
  return input;
}

void touch_pages(std::span<const std::byte> rows) {
  constexpr std::size_t kPage = 4096;
  for (std::size_t at = 0; at < rows.size(); at += kPage) __builtin_prefetch(rows.data() + at, 0, 2);
}

}  // namespace

ExpertJob::ExpertJob(std::span<const model::LayerExperts> layers, const shm::BoardGeometry& geometry,
                     uint32_t lanes, const CutRules& rules)
    : layers_(layers),
      geometry_(geometry),
      lanes_(lanes),
      rules_(rules),
      f32_input_(float_input(layers, geometry)) {
  uint32_t experts_max = 0;
  for (const model::LayerExperts& layer : layers) {
    experts_max = std::max(experts_max, layer.count);
    width_max_ = std::max(width_max_, layer.width);
    CHECK(layer.hidden == geometry.hidden, "experts of {} values, a board of {}", layer.hidden,
          geometry.hidden);
  }
  runs_.reserve(experts_max);
  whole_.reserve(experts_max);
  split_.reserve(experts_max);
  tokens_.reserve(geometry.pairs_max);
  outputs_.reserve(geometry.pairs_max);
  intermediate_lines_ = (width_max_ * sizeof(float) + kCacheLine - 1) / kCacheLine;
  if (lanes > 1) intermediates_.resize(geometry.pairs_max * intermediate_lines_);
}

void ExpertJob::prepare(JobScratch& scratch) const {
  scratch.expert.reserve(geometry_.tokens_max, width_max_);
  scratch.reading = 0;
  scratch.output_rows.reserve(split_.capacity());
}

Status ExpertJob::check(const shm::BoardRequest& request) const {
  const auto wrong = [&](const char* field, uint64_t value, uint64_t limit) {
    return fail(Code::kDataLoss, "board request {}: {} is {}, must be below {}", request.ticket, field, value,
                limit);
  };
  if (request.layer >= layers_.size()) return wrong("layer", request.layer, layers_.size());
  if (request.tokens > geometry_.tokens_max) return wrong("tokens", request.tokens, geometry_.tokens_max + 1);
  if (request.pair_count > geometry_.pairs_max)
    return wrong("pair_count", request.pair_count, geometry_.pairs_max + 1);
  if (request.numerics > static_cast<uint32_t>(quant::Numerics::kExact))
    return wrong("numerics", request.numerics, 2);
  if (request.pair_count == 0) return fail(Code::kDataLoss, "board request {}: no pairs", request.ticket);
  switch (request.activations) {
    case shm::ActivationKind::kF32:
      return {};
    case shm::ActivationKind::kQ8:
      if (expert::takes_q8_input(layers_[request.layer].expert(0),
                                 static_cast<quant::Numerics>(request.numerics)))
        return {};
      return fail(Code::kDataLoss, "board request {}: 8-bit activations for layer {}, which takes float32",
                  request.ticket, request.layer);
  }
  return wrong("activations", static_cast<uint32_t>(request.activations), 2);
}

Status ExpertJob::read_pairs(const shm::Board& board, const shm::BoardRequest& request) {
  runs_.clear();
  tokens_.clear();
  outputs_.clear();
  for (uint32_t i = 0; i < request.pair_count; ++i) {
    const shm::BoardPair pair = board.pairs()[i];
    if (pair.token >= request.tokens || pair.expert >= layer_->count) {
      return fail(Code::kDataLoss, "board request {}: pair {} is token {} of {}, expert {} of {}",
                  request.ticket, i, pair.token, request.tokens, pair.expert, layer_->count);
    }
    if (runs_.empty() || runs_.back().expert != pair.expert) {
      if (!runs_.empty() && pair.expert < runs_.back().expert) {
        return fail(Code::kDataLoss, "board request {}: expert {} after expert {}", request.ticket,
                    pair.expert, runs_.back().expert);
      }
      runs_.push_back({.expert = pair.expert, .begin = i, .end = i});
    }
    runs_.back().end = i + 1;
    tokens_.push_back(pair.token);
    outputs_.push_back(board.part(i));
  }
  return {};
}

void ExpertJob::bind_input(const shm::Board& board, const shm::BoardRequest& request) {
  const std::byte* rows = board.activations(0);
  const uint64_t row_bytes = geometry_.activation_row_bytes();
  if (request.activations == shm::ActivationKind::kQ8) {
    q8_input_ = quant::Activations::from_q8(rows, request.tokens, geometry_.hidden, row_bytes);
    q8_input_->freeze();
    input_ = &*q8_input_;
    return;
  }
  const auto* floats = reinterpret_cast<const float*>(rows);
  f32_input_.rebind(floats, request.tokens, geometry_.hidden, row_bytes / sizeof(float));
  // Where one of gate and up is quantized and the other is not, both forms are needed. The rule is the same
  // on both sides, and so are the bits.
  if (needs_q8(*layer_, numerics_)) f32_input_.ensure_q8();
  f32_input_.freeze();
  input_ = &f32_input_;
}

ExpertJob::Cut ExpertJob::cut(uint32_t rows, std::size_t row_bytes) const {
  const std::size_t wanted = std::max<std::size_t>((rules_.unit_bytes + row_bytes - 1) / row_bytes,
                                                   (rows + kExpertUnitsMax - 1) / kExpertUnitsMax);
  return {.rows = rows,
          .per_unit = static_cast<uint32_t>((wanted + kRowsAligned - 1) / kRowsAligned * kRowsAligned)};
}

// An expert costs the reading of its weights and a little per token. One that is more than a thread's fair
// share of the request would keep the others waiting, so it is split. Of the rest every thread gets as many
// whole experts as every other, and what is left over is split, too.
void ExpertJob::plan() {
  whole_.clear();
  split_.clear();
  const auto cost = [](const Run& run) { return uint64_t{kWeightsCost} + run.size(); };
  uint64_t total = 0;
  for (const Run& run : runs_) total += cost(run);
  for (uint32_t i = 0; i < runs_.size(); ++i) {
    const bool large = rules_.split == SplitRule::kAll || cost(runs_[i]) * lanes_ > total;
    (large && rules_.split != SplitRule::kNone && lanes_ > 1 ? split_ : whole_).push_back(i);
  }
  if (rules_.split == SplitRule::kByCost) {
    for (std::size_t over = whole_.size() % lanes_; over > 0; --over) {
      split_.push_back(whole_.back());
      whole_.pop_back();
    }
  }
  // Gate and up rows are computed together.
  gate_cut_ = cut(layer_->width, layer_->gate.row_bytes + layer_->up.row_bytes);
  down_cut_ = cut(layer_->hidden, layer_->down.row_bytes);
  const auto split = static_cast<uint32_t>(split_.size());
  units_ = {static_cast<uint32_t>(whole_.size()), split * gate_cut_.units(), split * down_cut_.units()};
}

Status ExpertJob::read(const shm::Board& board) {
  taken_at_ = std::chrono::steady_clock::now();
  const shm::BoardRequest request = board.header().request;
  TRY_OK(check(request));
  ++reading_;
  ticket_ = request.ticket;
  layer_ = &layers_[request.layer];
  numerics_ = static_cast<quant::Numerics>(request.numerics);
  TRY_OK(read_pairs(board, request));
  bind_input(board, request);
  weight_bytes_ = runs_.size() * expert_bytes(*layer_);
  plan();
  return {};
}

expert::ExpertTask ExpertJob::task_of(const Run& run) const {
  return {.weights = layer_->expert(run.expert),
          .x = input_,
          .tokens = std::span(tokens_).subspan(run.begin, run.size()),
          .y = std::span(outputs_).subspan(run.begin, run.size()),
          .numerics = numerics_};
}

expert::Intermediate ExpertJob::intermediate_of(const Run& run) {
  return {.rows = intermediates_[run.begin * intermediate_lines_].values,
          .stride = intermediate_lines_ * kCacheLine / sizeof(float)};
}

void ExpertJob::compute_whole(uint32_t index, JobScratch& scratch) const {
  const expert::ExpertTask task = task_of(runs_[whole_[index]]);
  // Shares are contiguous: mostly the next one is this thread's, too.
  std::span<const std::byte> next;
  if (index + 1 < whole_.size()) {
    const expert::ExpertTask following = task_of(runs_[whole_[index + 1]]);
    next = expert::ExpertPhases(following).gate_rows(0, following.width());
  }
  expert::ExpertPhases(task).whole(scratch.expert, next);
}

template <class Piece>
void ExpertJob::for_rows(const Cut& cut, const WorkShares::Claim& claim, const Piece& piece) const {
  for (uint32_t unit = claim.begin; unit < claim.end;) {
    const uint32_t index = unit / cut.units();
    const uint32_t first = unit % cut.units();
    const uint32_t last = std::min(cut.units(), first + claim.end - unit);
    piece(index, first * cut.per_unit, std::min(last * cut.per_unit, cut.rows));
    unit += last - first;
  }
}

void ExpertJob::compute(Stage stage, const WorkShares::Claim& claim, JobScratch& scratch) {
  switch (stage) {
    case Stage::kWhole:
      for (uint32_t index = claim.begin; index < claim.end; ++index) compute_whole(index, scratch);
      return;
    case Stage::kIntermediate:
      for_rows(gate_cut_, claim, [&](uint32_t index, uint32_t begin, uint32_t end) {
        const Run& run = runs_[split_[index]];
        const expert::ExpertTask task = task_of(run);
        const expert::ExpertPhases phases(task);
        phases.intermediate(begin, end, intermediate_of(run), scratch.expert,
                            phases.gate_rows(end, gate_cut_.rows));
      });
      return;
    case Stage::kOutput:
      for_rows(down_cut_, claim, [&](uint32_t index, uint32_t begin, uint32_t end) {
        const Run& run = runs_[split_[index]];
        const expert::ExpertTask task = task_of(run);
        const expert::ExpertPhases phases(task);
        if (scratch.reading != reading_ || scratch.output_expert != index) {
          scratch.output_input = phases.output_input(intermediate_of(run), scratch.expert);
          scratch.reading = reading_;
          scratch.output_expert = index;
        }
        phases.output(begin, end, *scratch.output_input, phases.down_rows(end, down_cut_.rows));
      });
      return;
  }
}

void ExpertJob::look_ahead(const WorkShares::Claim& intermediate, const WorkShares::Claim& output,
                           JobScratch& scratch) const {
  for_rows(gate_cut_, intermediate, [&](uint32_t index, uint32_t begin, uint32_t end) {
    const expert::ExpertTask task = task_of(runs_[split_[index]]);
    touch_pages(expert::ExpertPhases(task).gate_rows(begin, end));
    touch_pages(expert::ExpertPhases(task).up_rows(begin, end));
  });
  scratch.output_rows.clear();
  for_rows(down_cut_, output, [&](uint32_t index, uint32_t begin, uint32_t end) {
    const expert::ExpertTask task = task_of(runs_[split_[index]]);
    scratch.output_rows.push_back(expert::ExpertPhases(task).down_rows(begin, end));
    touch_pages(scratch.output_rows.back());
  });
}

}  // namespace strata::cpu_expert_worker
