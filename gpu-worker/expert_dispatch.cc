#include "gpu-worker/expert_dispatch.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>

#include "gpu-worker/expert_groups.h"
#include "gpu-worker/expert_share.h"
#include "services/base/check.h"
#include "services/base/counter.h"

namespace strata::gpu_worker {
namespace {

using Clock = std::chrono::steady_clock;

uint64_t elapsed_us(Clock::time_point since) {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - since).count());
}

// Floats between two parts: whole cache lines.
std::size_t part_stride_of(const model::ModelWeights& weights) {
  return (weights.config.hidden + 15) / 16 * 16;
}

// One expert with all of its tokens, to be computed by a thread of this process.
struct LocalJob {
  expert::ExpertWeights weights;
  ExpertGroup group;
};

}  // namespace

struct ExpertDispatch::Impl {
  Impl(const ExpertDispatchOptions& given, uint32_t pairs_max, uint32_t experts_max);

  const model::LayerExperts& layer_experts() const {
    return options.weights->layers[routed.layer].moe.experts;
  }
  ShareContext share_context() const;
  bool last_layer() const { return routed.layer + 1 == options.weights->layers.size(); }
  void split();
  void choose_shares();
  void send_misses();
  void count_uses();
  void count_group(const ExpertGroup& group, std::atomic<uint64_t>& layer_decode,
                   std::atomic<uint64_t>& layer_prefill) const;
  void count_window();
  void run_local(std::span<const LocalJob> jobs);
  void collect(ExpertShare& share);
  void take_parts(const ExpertShare& share);
  void compute_left_over();
  void abandon();
  float* local_part(uint32_t pair) { return local_parts.data() + std::size_t{pair} * part_stride; }

  ExpertDispatchOptions options;
  DispatchCounters counters;
  // The window.
  std::vector<uint8_t> row_is_prompt;
  uint32_t prompt_rows = 0;
  // The layer.
  bool running = false;  // between begin() and finish()
  model::RoutedLayer routed;
  shm::ActivationKind activations = shm::ActivationKind::kQ8;
  ExpertGroups groups;
  std::vector<LocalJob> hits;
  std::vector<ExpertGroup> misses;
  std::vector<uint32_t> miss_share;  // per miss: who computes it
  std::vector<ExpertShare> shares;   // (kExpertWorkersMax); the first share_count are in use
  uint32_t share_count = 0;
  std::vector<LocalJob> left_over;
  // Results: a part lies here when it was computed here or had to leave its board, else on the worker's
  // board.
  std::size_t part_stride;
  std::vector<float> local_parts;              // (pairs, hidden)
  std::vector<float*> outputs;                 // per place in groups.pairs(): its row of local_parts
  std::vector<const float*> parts;             // (tokens, top_k): the answer of finish()
  std::vector<expert::ExpertScratch> scratch;  // one per lane of run_local
};

ExpertDispatch::Impl::Impl(const ExpertDispatchOptions& given, uint32_t pairs_max, uint32_t experts_max)
    : options(given),
      groups(pairs_max, experts_max),
      part_stride(part_stride_of(*given.weights)),
      local_parts(pairs_max * part_stride),
      outputs(pairs_max),
      parts(pairs_max),
      scratch(given.parallel->threads()) {
  row_is_prompt.reserve(options.tokens_max);
  hits.reserve(experts_max);
  misses.reserve(experts_max);
  miss_share.reserve(experts_max);
  left_over.reserve(experts_max);
  for (uint32_t i = 0; i < kExpertWorkersMax; ++i)
    shares.emplace_back(options.tokens_max, pairs_max, experts_max);
  uint32_t width_max = 0;
  for (const auto& layer : options.weights->layers) width_max = std::max(width_max, layer.moe.experts.width);
  for (auto& lane : scratch) lane.reserve(options.tokens_max, width_max);
}

ShareContext ExpertDispatch::Impl::share_context() const {
  return {.routed = &routed, .groups = &groups, .activations = activations, .numerics = options.numerics};
}

// Hits and misses of the layer. One question per expert: the residency stands still within a window.
void ExpertDispatch::Impl::split() {
  const model::LayerExperts& experts = layer_experts();
  hits.clear();
  misses.clear();
  uint64_t missed_pairs = 0;
  for (const ExpertGroup& group : groups.groups()) {
    const std::byte* record = options.residents->record(routed.layer, group.expert);
    if (record != nullptr) {
      hits.push_back({.weights = experts.expert_at(record, group.expert), .group = group});
    } else {
      misses.push_back(group);
      missed_pairs += group.size();
    }
  }
  count(counters.misses, missed_pairs);
  count(counters.hits, groups.pairs().size() - missed_pairs);
}

// Whole experts, so that no weight is read twice. An expert has a home among the workers, the one of its
// number in turn, which finds its weights on the own NUMA node; but nobody gets more than a fair share, since
// reading from the next node is still better than waiting.
void ExpertDispatch::Impl::choose_shares() {
  miss_share.clear();
  std::array<uint32_t, kExpertWorkersMax> taken{};
  for (const ExpertGroup& miss : misses) {
    miss_share.push_back(miss.expert % share_count);
    ++taken[miss_share.back()];
  }
  const auto fair = static_cast<uint32_t>((misses.size() + share_count - 1) / share_count);
  for (uint32_t& share : miss_share) {
    if (taken[share] <= fair) continue;
    const auto least = std::min_element(taken.begin(), taken.begin() + share_count);
    --taken[share];
    share = static_cast<uint32_t>(least - taken.begin());
    ++*least;
  }
}

void ExpertDispatch::Impl::send_misses() {
  share_count = 0;
  left_over.clear();
  for (const auto& worker : options.workers->in_window()) {
    if (!worker->retired.load(std::memory_order_relaxed)) shares[share_count++].begin(*worker);
  }
  if (share_count == 0) {
    const model::LayerExperts& experts = layer_experts();
    for (const ExpertGroup& miss : misses)
      left_over.push_back({.weights = experts.expert(miss.expert), .group = miss});
    return;
  }
  choose_shares();
  for (std::size_t i = 0; i < misses.size(); ++i) shares[miss_share[i]].add(misses[i]);
  const ShareContext context = share_context();
  for (uint32_t i = 0; i < share_count; ++i) {
    if (!shares[i].empty()) shares[i].send_first(context);
  }
}

void ExpertDispatch::Impl::count_uses() {
  if (options.usage == nullptr) return;
  shm::LayerUses& layer = options.usage->layer(routed.layer);
  for (const LocalJob& hit : hits) count_group(hit.group, layer.decode_hits, layer.prefill_hits);
  for (const ExpertGroup& miss : misses) count_group(miss, layer.decode_misses, layer.prefill_misses);
}

void ExpertDispatch::Impl::count_group(const ExpertGroup& group, std::atomic<uint64_t>& layer_decode,
                                       std::atomic<uint64_t>& layer_prefill) const {
  uint32_t prompt_uses = 0;
  for (uint32_t i = group.begin; i < group.end; ++i)
    prompt_uses += row_is_prompt[groups.tokens()[i]] != 0 ? 1 : 0;
  const uint32_t decode_uses = group.size() - prompt_uses;
  count(options.usage->prefill(routed.layer, group.expert), prompt_uses);
  count(options.usage->decode(routed.layer, group.expert), decode_uses);
  count(layer_prefill, prompt_uses);
  count(layer_decode, decode_uses);
}

void ExpertDispatch::Impl::count_window() {
  if (options.usage == nullptr || !last_layer()) return;
  options.usage->window_finished({.prompt = prompt_rows, .generated = row_is_prompt.size() - prompt_rows});
}

// A lane per thread with a scratch of its own; the lanes take experts one by one, since some have many tokens
// and some have one.
void ExpertDispatch::Impl::run_local(std::span<const LocalJob> jobs) {
  std::atomic<uint32_t> next{0};  // relaxed: it only deals out numbers; Parallel orders the results
  const auto lanes = static_cast<uint32_t>(std::min(jobs.size(), scratch.size()));
  options.parallel->run(lanes, 1, [&](uint32_t begin, uint32_t end) {
    for (uint32_t lane = begin; lane < end; ++lane) {
      for (uint32_t i = next.fetch_add(1, std::memory_order_relaxed); i < jobs.size();
           i = next.fetch_add(1, std::memory_order_relaxed)) {
        const ExpertGroup& group = jobs[i].group;
        expert::compute_expert(
            jobs[i].weights, *routed.input, groups.tokens().subspan(group.begin, group.size()),
            std::span(outputs).subspan(group.begin, group.size()), options.numerics, scratch[lane]);
      }
    }
  });
}

// A share that took one request leaves its parts on the board, where the model may read them until the next
// layer's request. The parts of one that takes several must leave before the next request overwrites them.
void ExpertDispatch::Impl::take_parts(const ExpertShare& share) {
  const shm::Board& board = share.worker().board;
  const auto pairs = share.pairs();
  for (uint32_t i = 0; i < pairs.size(); ++i) {
    const float* part = board.part(i);
    if (!share.single_request()) {
      float* copy = local_part(pairs[i]);
      std::memcpy(copy, part, board.geometry().hidden * sizeof(float));
      part = copy;
    }
    parts[pairs[i]] = part;
  }
}

void ExpertDispatch::Impl::collect(ExpertShare& share) {
  const ShareContext context = share_context();
  do {
    if (!options.workers->wait_done(share.worker(), share.ticket(), share.pair_count())) {
      // All of its experts again, also what earlier requests brought: the same bits, and a rare case stays
      // simple.
      const model::LayerExperts& experts = layer_experts();
      for (const ExpertGroup& group : share.groups()) {
        left_over.push_back({.weights = experts.expert(group.expert), .group = group});
      }
      return;
    }
    take_parts(share);
  } while (share.send_next(context));
}

void ExpertDispatch::Impl::compute_left_over() {
  run_local(left_over);
  uint64_t pairs = 0;
  for (const LocalJob& job : left_over) {
    for (uint32_t i = job.group.begin; i < job.group.end; ++i) parts[groups.pairs()[i]] = outputs[i];
    pairs += job.group.size();
  }
  count(counters.fallbacks, pairs);
}

// A window that broke off within a layer leaves requests behind: their boards must be quiet before they are
// used again.
void ExpertDispatch::Impl::abandon() {
  if (!running) return;
  for (uint32_t i = 0; i < share_count; ++i) {
    if (!shares[i].empty())
      options.workers->wait_done(shares[i].worker(), shares[i].ticket(), shares[i].pair_count());
  }
  running = false;
}

ExpertDispatch::ExpertDispatch(const ExpertDispatchOptions& options) {
  CHECK(options.weights != nullptr && options.residents != nullptr && options.workers != nullptr &&
        options.parallel != nullptr);
  uint32_t experts_max = 0;
  for (const auto& layer : options.weights->layers)
    experts_max = std::max(experts_max, layer.moe.experts.count);
  impl_ =
      std::make_unique<Impl>(options, options.tokens_max * options.weights->config.experts_used, experts_max);
}

ExpertDispatch::~ExpertDispatch() = default;

uint64_t ExpertDispatch::bytes_needed(const model::ModelWeights& weights, uint32_t rows, uint32_t threads) {
  const uint64_t pairs = uint64_t{rows} * weights.config.experts_used;
  uint32_t width = 0;
  for (const auto& layer : weights.layers) width = std::max(width, layer.moe.experts.width);
  const uint64_t pair = part_stride_of(weights) * sizeof(float) + 2 * sizeof(void*) +
                        ExpertGroups::kPairBytes + kExpertWorkersMax * ExpertShare::kPairBytes;
  const uint64_t row = 1 + kExpertWorkersMax * ExpertShare::kRowBytes;
  return pairs * pair + rows * row + threads * expert::ExpertScratch::bytes_needed(rows, width);
}

void ExpertDispatch::begin_window(std::span<const uint8_t> row_is_prompt) {
  CHECK(row_is_prompt.size() <= impl_->options.tokens_max, "{} rows, at most {}", row_is_prompt.size(),
        impl_->options.tokens_max);
  impl_->abandon();
  impl_->row_is_prompt.assign(row_is_prompt.begin(), row_is_prompt.end());
  impl_->prompt_rows =
      static_cast<uint32_t>(std::ranges::count_if(row_is_prompt, [](uint8_t prompt) { return prompt != 0; }));
  impl_->options.workers->at_window_boundary();
}

void ExpertDispatch::begin(const model::RoutedLayer& routed) {
  Impl& impl = *impl_;
  CHECK(!impl.running, "layer {} before layer {} was finished", routed.layer, impl.routed.layer);
  CHECK(routed.tokens <= impl.row_is_prompt.size(), "{} tokens in a window of {}", routed.tokens,
        impl.row_is_prompt.size());
  impl.running = true;
  impl.routed = routed;
  impl.activations = expert::takes_q8_input(impl.layer_experts().expert(0), impl.options.numerics)
                         ? shm::ActivationKind::kQ8
                         : shm::ActivationKind::kF32;
  impl.groups.build(routed);
  impl.split();
  impl.send_misses();
  // While the workers compute:
  for (uint32_t i = 0; i < impl.groups.pairs().size(); ++i)
    impl.outputs[i] = impl.local_part(impl.groups.pairs()[i]);
  impl.count_uses();
}

std::span<const float* const> ExpertDispatch::finish() {
  Impl& impl = *impl_;
  CHECK(impl.running, "no layer was begun");
  impl.run_local(impl.hits);
  for (const LocalJob& job : impl.hits) {
    for (uint32_t i = job.group.begin; i < job.group.end; ++i)
      impl.parts[impl.groups.pairs()[i]] = impl.outputs[i];
  }

  const Clock::time_point waiting = Clock::now();
  for (uint32_t i = 0; i < impl.share_count; ++i) {
    if (!impl.shares[i].empty()) impl.collect(impl.shares[i]);
  }
  if (impl.last_layer()) impl.options.workers->window_over();
  impl.compute_left_over();
  count(impl.counters.wait_us, elapsed_us(waiting));
  impl.count_window();
  impl.running = false;
  return {impl.parts.data(), impl.groups.pairs().size()};
}

void ExpertDispatch::end_window() { impl_->options.workers->window_over(); }

const DispatchCounters& ExpertDispatch::counters() const { return impl_->counters; }

}  // namespace strata::gpu_worker
