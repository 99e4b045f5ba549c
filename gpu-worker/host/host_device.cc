#include "gpu-worker/host/host_device.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <utility>

#include "gpu-worker/fixed_state.h"
#include "gpu-worker/host/host_state.h"
#include "gpu-worker/pages_gate.h"
#include "gpu-worker/state_copies.h"
#include "services/base/check.h"
#include "services/model/record_checksum.h"
#include "services/shm/arena.h"

namespace strata::gpu_worker {

namespace {

std::vector<uint32_t> experts_per_layer(const model::ModelWeights& weights) {
  std::vector<uint32_t> counts;
  for (const model::LayerWeights& layer : weights.layers) counts.push_back(layer.moe.experts.count);
  return counts;
}

RecordChecksum checksum_by(const model::ModelWeights& weights) {
  return [&weights](uint32_t layer, uint32_t expert, const std::byte* record) {
    return model::record_checksum(weights.layers[layer].moe.experts, expert, record);
  };
}

// A head that has lost its numbers shows it as NaN or infinity, or as one value everywhere.
bool usable(std::span<const float> logits) {
  bool differ = logits.size() == 1;
  for (float logit : logits) {
    if (!std::isfinite(logit)) return false;
    differ = differ || logit != logits[0];
  }
  return differ;
}

// A window that fails must not keep the workers awake.
class WindowEnd {
 public:
  explicit WindowEnd(ExpertDispatch& dispatch) : dispatch_(dispatch) {}
  ~WindowEnd() { dispatch_.end_window(); }
  WindowEnd(const WindowEnd&) = delete;
  WindowEnd& operator=(const WindowEnd&) = delete;

 private:
  ExpertDispatch& dispatch_;
};

}  // namespace

// Notes where the forward pass is, for the watchdog, and what the router chose, on the way to the dispatch.
class HostDevice::TracedExperts final : public model::MoeExecutor {
 public:
  TracedExperts(ExpertDispatch& dispatch, std::size_t routed_max) : dispatch_(dispatch) {
    routed_.reserve(routed_max);
  }

  std::span<const uint16_t> routed() const { return routed_; }
  void begin_window() { routed_.clear(); }
  void begin(const model::RoutedLayer& routed) override {
    layer.store(routed.layer, std::memory_order_relaxed);
    routed_.insert(routed_.end(), routed.experts, routed.experts + std::size_t{routed.tokens} * routed.top_k);
    doing.store("dispatching experts", std::memory_order_relaxed);
    dispatch_.begin(routed);
    doing.store("shared expert", std::memory_order_relaxed);
  }
  std::span<const float* const> finish() override {
    doing.store("computing hits and waiting for the expert workers", std::memory_order_relaxed);
    auto parts = dispatch_.finish();
    doing.store("dense part after the experts", std::memory_order_relaxed);
    return parts;
  }

  std::atomic<uint32_t> layer{0};
  std::atomic<const char*> doing{"idle"};  // string literals only

 private:
  ExpertDispatch& dispatch_;
  std::vector<uint16_t> routed_;  // (layers, rows, k) of the window
};

std::span<const uint16_t> HostDevice::routed() const { return experts_->routed(); }

Result<std::unique_ptr<HostDevice>> HostDevice::create(const HostDeviceOptions& options) {
  const MemoryPlan& plan = options.plan;
  uint64_t instance = shm::random_instance_id();
  auto name = [&](std::string_view what) { return shm::segment_name(options.run_id, what, instance); };
  auto layers = static_cast<uint32_t>(options.weights->layers.size());
  TRY(auto arena, shm::Segment::create(name("arena"), shm::SegmentKind::kArena, shm::kArenaLayoutVersion,
                                       shm::arena_bytes(plan.slots, plan.slot_bytes)));
  TRY(auto table, shm::ResidencyTable::create(name("residency"), plan.slots, layers, plan.slot_bytes));
  std::vector<uint32_t> counts = experts_per_layer(*options.weights);
  TRY(auto usage,
      shm::UsageBoard::create(name("usage"), layers, *std::max_element(counts.begin(), counts.end())));
  return std::unique_ptr<HostDevice>(
      new HostDevice(options, std::move(arena), std::move(table), std::move(usage)));
}

HostDevice::HostDevice(const HostDeviceOptions& options, shm::Segment arena, shm::ResidencyTable table,
                       shm::UsageBoard usage)
    : options_(options),
      arena_(std::move(arena)),
      usage_(std::move(usage)),
      residents_({.table = std::move(table),
                  .slots = shm::arena_slots(arena_),
                  .slot_bytes = options.plan.slot_bytes,
                  .experts_per_layer = experts_per_layer(*options.weights),
                  .checksum = options.verify_records ? checksum_by(*options.weights) : RecordChecksum()}),
      parallel_(options.threads),
      dispatch_({.weights = options.weights,
                 .numerics = options.numerics,
                 .residents = &residents_,
                 .workers = options.workers,
                 .usage = &usage_,
                 .parallel = &parallel_,
                 .tokens_max = options.plan.window_rows_max}),
      experts_(std::make_unique<TracedExperts>(
          dispatch_, routed_picks_max(options.weights->config, options.plan.window_rows_max))),
      forward_(*options.weights, options.numerics, options.plan.window_rows_max, parallel_),
      sampler_(options.weights->config.vocab),
      pool_(options.plan.sequences),
      logits_(std::size_t{options.plan.sequences} * options.weights->config.vocab) {
  for (Pooled& pooled : pool_) {
    pooled.state =
        std::make_unique<model::SequenceState>(options.weights->config, options.plan.context_tokens);
    pooled.arrays = host_state_pointers(options.weights->config, *pooled.state);
  }
  layout_ = StateLayout(host_state_arrays(options.weights->config, *pool_.front().state));
  slots_.resize(options.plan.checkpoint_slots * layout_.fixed_bytes());
  for (uint32_t index = 0; index < options.plan.checkpoint_slots; ++index)
    slot_states_.push_back(fixed_state_in(options.weights->config, layout_, slot(index).data()));
  rows_.reserve(options.plan.window_rows_max);
  row_is_prompt_.reserve(options.plan.window_rows_max);
  forward_.override_routing(options.routing);
}

HostDevice::~HostDevice() = default;

Result<SequenceId> HostDevice::open_sequence() {
  for (uint32_t index = 0; index < pool_.size(); ++index) {
    Pooled& pooled = pool_[index];
    if (pooled.open) continue;
    pooled.open = true;
    pooled.state->reset();
    return SequenceId{index, ++pooled.generation};
  }
  return fail(Code::kResourceExhausted, "all {} sequences are running (engine.sequences)", pool_.size());
}

void HostDevice::close_sequence(SequenceId id) { pooled(id).open = false; }

HostDevice::Pooled& HostDevice::pooled(SequenceId id) {
  CHECK(id.index < pool_.size(), "sequence {}", id.index);
  Pooled& pooled = pool_[id.index];
  CHECK(pooled.open && pooled.generation == id.generation, "sequence {} generation {}, now {}", id.index,
        id.generation, pooled.generation);
  return pooled;
}

std::span<std::byte> HostDevice::slot(uint32_t index) {
  CHECK(index < options_.plan.checkpoint_slots, "checkpoint slot {}", index);
  return std::span(slots_).subspan(index * layout_.fixed_bytes(), layout_.fixed_bytes());
}

void HostDevice::capture(SequenceId from, uint32_t index) {
  copy_state(layout_.fixed_pieces(), pooled(from).arrays, slot(index).data(), StateDirection::kToBlob,
             std::memcpy);
}

void HostDevice::restore(SequenceId to, uint32_t index, uint32_t tokens) {
  Pooled& sequence = pooled(to);
  copy_state(layout_.fixed_pieces(), sequence.arrays, slot(index).data(), StateDirection::kFromBlob,
             std::memcpy);
  sequence.state->set_position(tokens);
}

void HostDevice::copy_pages(SequenceId from, SequenceId to, uint32_t tokens) {
  const std::vector<std::byte*>& source = pooled(from).arrays;
  const std::vector<std::byte*>& target = pooled(to).arrays;
  for (uint32_t page = 0; page < state_pages(tokens); ++page) {
    for (const StateLayout::Piece& piece : layout_.page_pieces(page, tokens))
      std::memcpy(target[piece.array] + piece.at, source[piece.array] + piece.at, piece.bytes);
  }
}

Status HostDevice::read_slot(uint32_t index, std::span<std::byte> to) {
  CHECK(to.size() == layout_.fixed_bytes(), "{} bytes for a fixed part of {}", to.size(),
        layout_.fixed_bytes());
  std::ranges::copy(slot(index), to.begin());
  return {};
}

Status HostDevice::write_slot(uint32_t index, std::span<const std::byte> from) {
  CHECK(from.size() == layout_.fixed_bytes(), "{} bytes for a fixed part of {}", from.size(),
        layout_.fixed_bytes());
  std::ranges::copy(from, slot(index).begin());
  return {};
}

Status HostDevice::read_page(SequenceId from, uint32_t page, uint32_t tokens, std::span<std::byte> to) {
  CHECK(to.size() == layout_.page_bytes(), "{} bytes for a page of {}", to.size(), layout_.page_bytes());
  std::ranges::fill(to, std::byte{0});
  copy_state(layout_.page_pieces(page, tokens), pooled(from).arrays, to.data(), StateDirection::kToBlob,
             std::memcpy);
  return {};
}

Status HostDevice::write_page(SequenceId to, uint32_t page, uint32_t tokens,
                              std::span<const std::byte> from) {
  CHECK(from.size() == layout_.page_bytes(), "{} bytes for a page of {}", from.size(), layout_.page_bytes());
  // Only read from in this direction.
  auto* blob = const_cast<std::byte*>(from.data());
  copy_state(layout_.page_pieces(page, tokens), pooled(to).arrays, blob, StateDirection::kFromBlob,
             std::memcpy);
  return {};
}

Status HostDevice::run_window(std::span<const DeviceRow> rows, std::vector<RowChoice>& choices) {
  choices.clear();
  rows_.clear();
  row_is_prompt_.clear();
  std::size_t wanted = 0;
  for (const DeviceRow& row : rows) {
    bool wants = row.sample.params != nullptr;
    rows_.push_back({.sequence = pooled(row.sequence).state.get(),
                     .token = row.token,
                     .want_logits = wants,
                     .routing_sequence = routing_sequence(row.sequence),
                     .capture = row.capture ? &slot_states_.at(*row.capture) : nullptr});
    row_is_prompt_.push_back(row.is_prompt ? 1 : 0);
    wanted += wants ? 1 : 0;
  }
  CHECK(wanted <= options_.plan.sequences, "{} rows want a token", wanted);
  experts_->layer.store(0, std::memory_order_relaxed);
  experts_->doing.store("dense part before the experts", std::memory_order_relaxed);
  experts_->begin_window();
  dispatch_.begin_window(row_is_prompt_);
  const WindowEnd window_end(dispatch_);
  std::span<float> logits = std::span<float>(logits_).first(wanted * options_.weights->config.vocab);
  const auto await_pages = [&] {
    experts_->doing.store("waiting for pages that are brought back", std::memory_order_relaxed);
    for (const DeviceRow& row : rows) {
      if (row.pages != nullptr) row.pages->wait();
    }
  };
  TRY_OK(forward_.run(rows_, *experts_, logits, nullptr, await_pages));
  experts_->doing.store("sampling", std::memory_order_relaxed);
  choose(rows, choices);
  return {};
}

void HostDevice::choose(std::span<const DeviceRow> rows, std::vector<RowChoice>& choices) {
  auto begin = std::chrono::steady_clock::now();
  std::size_t vocab = options_.weights->config.vocab;
  for (uint32_t index = 0; index < rows.size(); ++index) {
    const SampleRequest& request = rows[index].sample;
    if (request.params == nullptr) continue;
    std::span<const float> logits = std::span<const float>(logits_).subspan(choices.size() * vocab, vocab);
    RowChoice& choice = choices.emplace_back(RowChoice{.row = index, .usable = usable(logits), .token = {}});
    if (choice.usable) {
      choice.token = sampler_.sample(logits, *request.params, request.position, request.prompt,
                                     request.generated, request.mask);
    }
  }
  commit_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

StageSeconds HostDevice::take_stages() {
  model::PhaseSeconds phases = forward_.take_phases();
  uint64_t wait_us = dispatch_.counters().wait_us.load(std::memory_order_relaxed);
  double waited = static_cast<double>(wait_us - std::exchange(wait_us_taken_, wait_us)) * 1e-6;
  StageSeconds seconds{};
  stage(seconds, Stage::kRoute) = phases.route;
  stage(seconds, Stage::kVramExperts) = std::max(0.0, phases.experts - waited);  // hits and the shared expert
  stage(seconds, Stage::kCpuWait) = waited;
  stage(seconds, Stage::kAttention) = phases.attention;
  stage(seconds, Stage::kHead) = phases.head;
  stage(seconds, Stage::kCommit) = std::exchange(commit_seconds_, 0.0);
  stage(seconds, Stage::kMixers) = phases.mixers;
  stage(seconds, Stage::kDeltaNet) = phases.delta_net;
  stage(seconds, Stage::kNgram) = phases.ngram;
  return seconds;
}

ArenaHandle HostDevice::arena() const {
  return {.segment = arena_.name(),
          .bytes = arena_.bytes(),
          .instance_id = arena_.instance_id(),
          .slot_count = options_.plan.slots,
          .slot_bytes = options_.plan.slot_bytes};
}

std::string HostDevice::activity() const {
  return fmt::format("host device: layer {} of {}: {}", experts_->layer.load(std::memory_order_relaxed),
                     options_.weights->layers.size(), experts_->doing.load(std::memory_order_relaxed));
}

}  // namespace strata::gpu_worker
