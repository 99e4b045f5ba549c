#include "gpu-worker/cuda/cuda_device.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <map>
#include <numeric>
#include <utility>

#include "gpu-worker/cuda/board_tender.h"
#include "gpu-worker/cuda/cpu_share.h"
#include "gpu-worker/cuda/delta_net.h"
#include "gpu-worker/cuda/device_buffer.h"
#include "gpu-worker/cuda/device_layout.h"
#include "gpu-worker/cuda/expert_places.h"
#include "gpu-worker/cuda/forward.h"
#include "gpu-worker/cuda/kept_states.h"
#include "gpu-worker/cuda/mapped_boards.h"
#include "gpu-worker/cuda/registered_experts.h"
#include "gpu-worker/cuda/runtime.h"
#include "gpu-worker/cuda/window_graphs.h"
#include "gpu-worker/expert_dispatch.h"
#include "gpu-worker/fixed_state.h"
#include "gpu-worker/pages_gate.h"
#include "services/base/check.h"
#include "services/base/counter.h"
#include "services/model/ngram_embedding.h"
#include "services/model/rope.h"
#include "services/obs/log.h"

namespace strata::gpu_worker::cuda {
namespace {

// One small window in so many carries stage marks, and speaks for the others: they cost some percent there,
// because kernels on both sides of a mark do not overlap. Large ones carry them always.
constexpr uint64_t kMarkEvery = 64;
constexpr uint32_t kRowsPerPiece = 4;

StageSeconds sum_of(StageSeconds a, const StageSeconds& b) {
  for (std::size_t i = 0; i < kStages; ++i) a[i] += b[i];
  return a;
}

std::vector<uint32_t> experts_per_layer(const model::ModelWeights& weights) {
  std::vector<uint32_t> counts;
  for (const model::LayerWeights& layer : weights.layers) counts.push_back(layer.moe.experts.count);
  return counts;
}

// A sequence as the host knows it; the rest of its state is on the device.
struct Sequence {
  bool open = false;
  uint32_t generation = 0;
  uint32_t position = 0;
  std::vector<int32_t> ngram_context;  // the last N-1 tokens, oldest first
  std::vector<std::byte*> arrays;      // of the state, as the layout numbers them
};

// What the marks of a window depend on.
struct MarkedKind {
  bool streams_experts = false;
  bool uses_boards = false;
  bool has_head = false;
  auto operator<=>(const MarkedKind&) const = default;
};

// A row that wants a token.
struct Wanted {
  uint32_t row = 0;
  bool on_host = false;  // the host samples it
};

bool is_last_of_sequence(std::span<const DeviceRow> rows, std::size_t index) {
  return index + 1 == rows.size() || rows[index + 1].sequence != rows[index].sequence;
}

// CUDA's errors stay: nothing works in this process any more. The supervisor starts another one, and the
// gateway submits again.
void check_gpu(const Status& status) { CHECK(status.ok(), "{}", status.message()); }

// At least the largest frame of a kernel (88 bytes; `cuobjdump --dump-resource-usage` lists them).
constexpr std::size_t kKernelStackBytes = 128;

}  // namespace

Result<VramInput> open_gpu() {
  // All kernels are loaded now, not each at its first launch, in the middle of somebody's answer.
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    return fail(Code::kUnavailable,
                "device.type: cuda needs an NVIDIA GPU and its driver: {}; device.type: host needs neither",
                error == cudaSuccess ? "no GPU is visible" : cudaGetErrorString(error));
  }
  TRY_CUDA(cudaSetDevice(0));
  // Of every thread that the card can hold at once. The default of 1 KiB is for calls that the compiler
  // cannot see through, of which no kernel has any: 262 MiB of an H200. With less than the largest frame the
  // driver would take more at some launch, when the memory is already planned.
  TRY_CUDA(cudaDeviceSetLimit(cudaLimitStackSize, kKernelStackBytes));
  std::size_t free_bytes = 0, total_bytes = 0;
  TRY_CUDA(cudaMemGetInfo(&free_bytes, &total_bytes));
  return VramInput{.total_bytes = total_bytes, .free_bytes = free_bytes};
}

struct CudaDevice::Impl {
  explicit Impl(const CudaDeviceOptions& given);
  Status allocate();
  Status make_forward();
  Status upload_weights(const std::vector<Upload>& uploads);

  Sequence& sequence_of(SequenceId id);
  Status plan(std::span<const DeviceRow> rows);
  void fill_rows(std::span<const DeviceRow> rows);
  void fill_row(std::span<const DeviceRow> rows, uint32_t index);
  void fill_routing(std::span<const DeviceRow> rows);
  void fill_samples(std::span<const DeviceRow> rows);
  Status at_boundary();
  Status run(bool marked);
  Status launch(bool marked);
  Status await();
  void context_behind(const SegmentInfo& segment, uint32_t count, std::span<int32_t> context) const;
  Status capture_contexts();
  void advance();
  Status choose(std::span<const DeviceRow> rows, std::vector<RowChoice>& choices);
  void count_uses(std::span<const DeviceRow> rows);
  MarkedKind marked_kind() const { return {shape.streams_experts, shape.uses_boards, shape.logit_rows > 0}; }
  void say(const char* what) { doing.store(what, std::memory_order_relaxed); }

  CudaDeviceOptions options;
  const model::ModelConfig& config;
  const model::Rope rope;
  std::unique_ptr<ResidentTable> residents;
  shm::UsageBoard usage;
  DispatchCounters counters;
  model::Parallel parallel;
  BoardSubstitute substitute;
  std::unique_ptr<MappedBoards> boards;
  std::unique_ptr<BoardTender> tender;
  std::unique_ptr<RegisteredExperts> registered;

  // Device memory: one block for everything but the arena, which other processes map.
  DeviceBuffer<std::byte> block, arena;
  cudaIpcMemHandle_t arena_ipc = {};
  std::byte* device_input = nullptr;
  uint32_t* places_with_boards = nullptr;
  uint32_t* places_with_copies = nullptr;
  BoardTable* board_table = nullptr;
  BoardTickets* board_tickets = nullptr;
  DeviceState state;
  const uint16_t* device_ids = nullptr;
  const float* device_logits = nullptr;
  // Page-locked.
  PinnedBuffer<std::byte> host_input;
  PinnedBuffer<uint16_t> host_ids;
  PinnedBuffer<SampleResult> results;
  PinnedBuffer<LogitChange> changes;
  PinnedBuffer<uint32_t> masks;  // (logit_rows, mask_words)
  PinnedBuffer<uint64_t> mark_times;
  PinnedBuffer<uint32_t> stop;
  PinnedBuffer<float> host_logits;  // one row

  ExpertPlaceTables places;
  CpuShare cpu_share;
  std::unique_ptr<ExpertStream> expert_stream;
  std::unique_ptr<Forward> forward;
  KeptStates kept;
  std::vector<model::FixedState> slot_states;  // of the checkpoint slots
  WindowGraphs graphs;
  StageMarks marks, no_marks;
  cudaStream_t stream = nullptr;
  cudaEvent_t done = nullptr;
  model::Sampler sampler;

  std::vector<Sequence> sequences;
  // The window.
  WindowShape shape;
  WindowInput input;  // in host_input
  uint64_t input_bytes = 0;
  std::vector<SegmentInfo> segments;
  std::vector<uint32_t> segment_of_row;
  std::vector<Wanted> wanted;
  std::vector<const PagesGate*> gates;
  std::vector<StateCapture> captures;  // but for those behind the last row of a sequence
  std::vector<LogitChange> window_changes;
  std::vector<int32_t> tokens;
  std::vector<uint64_t> table_row_ids;  // (rows, ngram_rows)
  uint64_t windows = 0;
  uint64_t small_windows = 0;
  StageSeconds stages{};
  StageSeconds small_stages{};                         // of the last small window with marks
  std::map<MarkedKind, std::vector<Stage>> stages_of;  // of the marks in windows of a kind
  std::atomic<const char*> doing{"idle"};              // string literals only
};

CudaDevice::Impl::Impl(const CudaDeviceOptions& given)
    : options(given),
      config(given.weights->config),
      rope(config.rope),
      parallel(given.threads),
      substitute(*given.weights, parallel),
      places(experts_per_layer(*given.weights)),
      graphs(given.graphs_max),
      sampler(config.vocab),
      sequences(given.plan.memory.sequences) {
  for (Sequence& sequence : sequences)
    sequence.ngram_context.resize(config.ngram_layer >= 0 ? config.ngram_size - 1 : 0);
  const uint32_t rows = given.plan.limits.rows;
  segments.reserve(rows);
  segment_of_row.reserve(rows);
  wanted.reserve(given.plan.limits.logit_rows);
  captures.reserve(given.plan.memory.checkpoint_slots);
  tokens.reserve(rows);
  if (config.ngram_layer >= 0) table_row_ids.resize(std::size_t{rows} * config.ngram_rows());
}

Status CudaDevice::Impl::allocate() {
  const VramPlan& plan = options.plan;
  const MemoryPlan& memory = plan.memory;
  uint64_t instance = shm::random_instance_id();
  const auto name = [&](std::string_view what) { return shm::segment_name(options.run_id, what, instance); };
  const auto layers = static_cast<uint32_t>(config.layers);
  TRY(auto table, shm::ResidencyTable::create(name("residency"), memory.slots, layers, memory.slot_bytes));
  TRY(usage, shm::UsageBoard::create(name("usage"), layers, places.experts_max()));
  // Kernels may read to the next multiple of 16 bytes behind a record; a slot is a multiple of 64.
  TRY(arena, DeviceBuffer<std::byte>::create(std::max<uint64_t>(memory.slots * memory.slot_bytes, 64)));
  const cudaError_t shared = cudaIpcGetMemHandle(&arena_ipc, arena.data());
  if (shared != cudaSuccess)
    return fail(Code::kUnavailable, "the arena cannot be shared with the cache manager (CUDA IPC): {}",
                cudaGetErrorString(shared));
  residents = std::make_unique<ResidentTable>(
      ResidentTableOptions{.table = std::move(table),
                           .slots = arena.data(),
                           .slot_bytes = memory.slot_bytes,
                           .experts_per_layer = experts_per_layer(*options.weights)});

  const PinnedCounts pinned = pinned_counts(config, plan);
  TRY(host_input, PinnedBuffer<std::byte>::create(pinned.input_bytes));
  TRY(host_ids, PinnedBuffer<uint16_t>::create(pinned.ids));
  TRY(results, PinnedBuffer<SampleResult>::create(pinned.results));
  TRY(changes, PinnedBuffer<LogitChange>::create(pinned.changes));
  TRY(masks, PinnedBuffer<uint32_t>::create(pinned.masks));
  TRY(mark_times, PinnedBuffer<uint64_t>::create(pinned.marks));
  TRY(stop, PinnedBuffer<uint32_t>::create(1));
  stop.span()[0] = 0;
  TRY(host_logits, PinnedBuffer<float>::create(pinned.logits));
  marks = StageMarks(mark_times.data());

  TRY_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  TRY_CUDA(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
  TRY(MappedBoards mapped, MappedBoards::create({.run_id = options.run_id,
                                                 .geometry = memory.board,
                                                 .workers = options.workers,
                                                 .substitute = &substitute}));
  boards = std::make_unique<MappedBoards>(std::move(mapped));
  tender = std::make_unique<BoardTender>(*boards, options.wait, options.other_cpus);
  return {};
}

Status CudaDevice::Impl::make_forward() {
  const VramPlan& plan = options.plan;
  Placer counting;
  lay_out(*options.weights, plan, counting, nullptr);
  TRY(block, DeviceBuffer<std::byte>::create(counting.used_bytes()));
  Placer placer(block.data());
  std::vector<Upload> uploads;
  DeviceLayout layout = lay_out(*options.weights, plan, placer, &uploads);
  places_with_boards = layout.places_with_boards;
  places_with_copies = layout.places_with_copies;
  board_table = layout.boards;
  board_tickets = layout.tickets;
  device_input = layout.input;
  ForwardOptions made{.weights = options.weights,
                      .model = std::move(layout.model),
                      .state = std::move(layout.state),
                      .buffers = layout.buffers,
                      .arena = arena.data(),
                      .staging = layout.staging,
                      .slot_bytes = plan.memory.slot_bytes,
                      .staging_slots = plan.staging_slots(),
                      .batch_experts = plan.batch_experts,
                      .places_with_boards = places_with_boards,
                      .places_with_copies = places_with_copies,
                      .experts_max = places.experts_max(),
                      .boards = board_table,
                      .tickets = board_tickets,
                      .stop = stop.data(),
                      .changes = changes.data(),
                      .masks = masks.data(),
                      .results = results.data()};
  state = made.state;
  for (uint32_t i = 0; i < sequences.size(); ++i)
    sequences[i].arrays = state_pointers(config, state, i, sequences[i].ngram_context.data());
  // What of a fixed part no array has is zero.
  TRY_CUDA(cudaMemsetAsync(layout.checkpoints, 0, plan.memory.checkpoint_slots * layout.kept.fixed_bytes(),
                           stream));
  for (uint32_t slot = 0; slot < plan.memory.checkpoint_slots; ++slot) {
    slot_states.push_back(
        fixed_state_in(config, layout.kept, layout.checkpoints + slot * layout.kept.fixed_bytes()));
  }
  TRY(kept,
      KeptStates::create(std::move(layout.kept), layout.checkpoints, plan.memory.checkpoint_slots, stream));
  device_ids = made.buffers.ids;
  device_logits = made.buffers.logits;
  TRY_CUDA(cudaMemsetAsync(made.buffers.arrivals, 0,
                           uint64_t{plan.limits.segments} * std::max(config.key_heads, 1u) * sizeof(uint32_t),
                           stream));
  TRY_OK(upload_weights(uploads));
  TRY(ExpertStream copies, ExpertStream::create({.weights = options.weights,
                                                 .staging = layout.staging,
                                                 .slot_bytes = plan.memory.slot_bytes,
                                                 .batch_experts = plan.batch_experts,
                                                 .ring_batches = plan.ring_batches}));
  expert_stream = std::make_unique<ExpertStream>(std::move(copies));
  TRY(Forward pass, Forward::create(std::move(made)));
  forward = std::make_unique<Forward>(std::move(pass));
  TRY_CUDA(cudaStreamSynchronize(stream));
  return {};
}

Status CudaDevice::Impl::upload_weights(const std::vector<Upload>& uploads) {
  for (const Upload& upload : uploads)
    TRY_CUDA(cudaMemcpyAsync(upload.target, upload.source, upload.bytes, cudaMemcpyHostToDevice, stream));
  return {};
}

Sequence& CudaDevice::Impl::sequence_of(SequenceId id) {
  CHECK(id.index < sequences.size(), "sequence {}", id.index);
  Sequence& sequence = sequences[id.index];
  CHECK(sequence.open && sequence.generation == id.generation, "sequence {} generation {}, now {}", id.index,
        id.generation, sequence.generation);
  return sequence;
}

// Checks the rows and arranges them by sequence; nothing has changed when it fails.
Status CudaDevice::Impl::plan(std::span<const DeviceRow> rows) {
  if (rows.size() > options.plan.limits.rows)
    return fail(Code::kInvalidArgument, "{} rows in a window of at most {}", rows.size(),
                options.plan.limits.rows);
  segments.clear();
  segment_of_row.clear();
  wanted.clear();
  tokens.clear();
  gates.clear();
  captures.clear();
  for (uint32_t index = 0; index < rows.size(); ++index) {
    const DeviceRow& row = rows[index];
    const Sequence& sequence = sequence_of(row.sequence);
    if (row.token < 0 || static_cast<uint32_t>(row.token) >= config.vocab)
      return fail(Code::kInvalidArgument, "row {}: token {}, the vocabulary has {}", index, row.token,
                  config.vocab);
    if (segments.empty() || segments.back().sequence != row.sequence.index) {
      for (const SegmentInfo& segment : segments) {
        if (segment.sequence == row.sequence.index)
          return fail(Code::kInvalidArgument, "row {}: the rows of a sequence are not consecutive", index);
      }
      segments.push_back({.sequence = row.sequence.index,
                          .row_begin = index,
                          .row_count = 0,
                          .position = sequence.position});
      if (row.pages != nullptr) gates.push_back(row.pages);
    }
    SegmentInfo& segment = segments.back();
    if (segment.position + segment.row_count >= options.plan.memory.context_tokens) {
      return fail(Code::kOutOfRange, "row {}: position {} of a sequence with room for {} tokens", index,
                  segment.position + segment.row_count, options.plan.memory.context_tokens);
    }
    if (row.is_prompt && segment.prompt_rows == segment.row_count) ++segment.prompt_rows;
    ++segment.row_count;
    segment_of_row.push_back(static_cast<uint32_t>(segments.size()) - 1);
    tokens.push_back(row.token);
    if (row.sample.params != nullptr) wanted.push_back({.row = index});
    if (row.capture && !is_last_of_sequence(rows, index))
      captures.push_back({.row = index, .sequence = row.sequence.index, .to = &slot_states.at(*row.capture)});
  }
  CHECK(wanted.size() <= options.plan.limits.logit_rows, "{} rows want a token", wanted.size());
  shape = {.rows = static_cast<uint32_t>(rows.size()),
           .segments = static_cast<uint32_t>(segments.size()),
           .logit_rows = static_cast<uint32_t>(wanted.size()),
           .streams_experts = rows.size() >= options.plan.stream_rows_min,
           .uses_boards = rows.size() <= options.plan.memory.board.tokens_max};
  Placer placer(host_input.data());
  input = place_input(config, shape, options.routing != nullptr, placer);
  input_bytes = placer.used_bytes();
  return {};
}

// Everything about row `index`: its place, rotations, and the rows of the tables that its token asks for.
void CudaDevice::Impl::fill_row(std::span<const DeviceRow> rows, uint32_t index) {
  const SegmentInfo& segment = segments[segment_of_row[index]];
  const uint32_t in_segment = index - segment.row_begin, position = segment.position + in_segment;
  input.rows[index] = {.token = static_cast<int32_t>(index),
                       .segment = segment_of_row[index],
                       .position = position,
                       .sequence = segment.sequence};
  const std::size_t turn = std::size_t{2} * rope.pairs() * index;
  rope.turn_at(position, input.turns + turn);
  // The indexer block that ends with the row; rows that end none have one before the sequence begins, which
  // nobody reads.
  uint32_t block_tokens = 0;
  for (uint32_t layer = 0; layer < config.layers; ++layer)
    block_tokens = std::max(block_tokens, config.block_tokens[layer]);
  rope.turn_at(block_tokens > 0 && position + 1 >= block_tokens ? position + 1 - block_tokens : 0,
               input.block_turns + turn);

  const model::ModelWeights& weights = *options.weights;
  float* embedded = input.embedded + std::size_t{index} * config.hidden;
  quant::dequantize_row(weights.embedding.type,
                        weights.embedding.row(static_cast<uint32_t>(rows[index].token)), embedded,
                        config.hidden);
  if (weights.embedding.scale != 1.0f) {
    for (uint32_t i = 0; i < config.hidden; ++i) embedded[i] *= weights.embedding.scale;
  }
  if (input.ngram == nullptr) return;
  const std::vector<int32_t>& history = sequences[segment.sequence].ngram_context;
  const uint32_t before = config.ngram_size - 1;
  int32_t context[model::kNgramSizeMax];
  for (uint32_t back = 0; back <= before; ++back)
    context[back] = back <= in_segment ? tokens[index - back] : history[before + in_segment - back];
  model::look_up_ngram(
      config, weights.ngram, {context, config.ngram_size},
      std::span(table_row_ids).subspan(std::size_t{index} * config.ngram_rows(), config.ngram_rows()),
      input.ngram + std::size_t{index} * config.hidden);
}

void CudaDevice::Impl::fill_rows(std::span<const DeviceRow> rows) {
  std::ranges::copy(segments, input.segments);
  for (std::size_t i = 0; i < wanted.size(); ++i) input.chosen[i] = wanted[i].row;
  parallel.run(shape.rows, kRowsPerPiece, [&](uint32_t begin, uint32_t end) {
    for (uint32_t row = begin; row < end; ++row) fill_row(rows, row);
  });
  if (options.routing != nullptr) fill_routing(rows);
  fill_samples(rows);
}

void CudaDevice::Impl::fill_routing(std::span<const DeviceRow> rows) {
  const uint32_t used = config.experts_used;
  // Other threads are worth waking only for many rows.
  const uint32_t piece = rows.size() <= kRowsPerPiece ? config.layers : 1;
  parallel.run(config.layers, piece, [&](uint32_t begin, uint32_t end) {
    for (uint32_t layer = begin; layer < end; ++layer) {
      for (uint32_t row = 0; row < rows.size(); ++row) {
        const std::size_t at = (std::size_t{layer} * shape.rows + row) * used;
        options.routing->choose(
            layer, {.sequence = routing_sequence(rows[row].sequence), .position = input.rows[row].position},
            {input.forced_ids + at, used});
      }
    }
  });
}

void CudaDevice::Impl::fill_samples(std::span<const DeviceRow> rows) {
  window_changes.clear();
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const SampleRequest& request = rows[wanted[i].row].sample;
    const std::size_t before = window_changes.size();
    wanted[i].on_host = !sampled_on_device(*request.params, config.vocab);
    if (!wanted[i].on_host) {
      input.samples[i] = sample_row(*request.params, request.position, request.prompt, request.generated,
                                    config.vocab, window_changes);
      wanted[i].on_host = window_changes.size() > changes.size();
    }
    if (wanted[i].on_host) {
      window_changes.resize(before);
      input.samples[i] = {};  // greedy: the device still says whether the logits can be used
    } else if (!request.mask.empty()) {
      input.samples[i].masked = 1;
      std::ranges::copy(request.mask, masks.data() + i * request.mask.size());
    }
  }
  std::ranges::copy(window_changes, changes.data());
}

// Takes note of workers and residency; the device's copies are brought up to date before the window.
Status CudaDevice::Impl::at_boundary() {
  TRY(const bool boards_changed, boards->update());
  if (boards_changed || windows == 1) {
    const BoardTickets tickets = boards->tickets();
    TRY_CUDA(
        cudaMemcpyAsync(board_table, &boards->table(), sizeof(BoardTable), cudaMemcpyHostToDevice, stream));
    TRY_CUDA(cudaMemcpyAsync(board_tickets, &tickets, sizeof(BoardTickets), cudaMemcpyHostToDevice, stream));
    TRY_CUDA(cudaStreamSynchronize(stream));  // `tickets` goes out of scope; workers seldom come and go
  }
  // Nobody is there to take a share, or it is not the copies that the window waits for.
  if (shape.streams_experts && boards->answers_here()) shape.uses_boards = false;
  const auto begin = std::chrono::steady_clock::now();
  // From pageable memory: the copies have read their source when the calls return.
  const auto copy_table = [&](uint32_t* to, const std::vector<uint32_t>& table) {
    return cudaMemcpyAsync(to, table.data(), table.size() * sizeof(uint32_t), cudaMemcpyHostToDevice, stream);
  };
  if (places.update(*residents)) {
    TRY_CUDA(copy_table(places_with_boards, places.with_boards()));
    stage(stages, Stage::kExchangeWait) +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  if (shape.streams_experts &&
      places.plan_copies(shape.uses_boards ? cpu_share.of(shape.rows) : 0.0, usage)) {
    TRY_CUDA(copy_table(places_with_copies, places.with_copies()));
  }
  return {};
}

Status CudaDevice::Impl::launch(bool marked) {
  StageMarks& window_marks = marked ? marks : no_marks;
  Placer placer(device_input);
  const WindowInput on_device = place_input(config, shape, options.routing != nullptr, placer);
  const uint64_t ids_bytes = uint64_t{config.layers} * shape.rows * config.experts_used * sizeof(uint16_t);
  const std::function<void()> await_pages = [this] {
    say("waiting for pages that are brought back");
    for (const PagesGate* gate : gates) gate->wait();
    say("launching the window");
  };
  const auto enqueue = [&] {
    cudaMemcpyAsync(device_input, host_input.data(), input_bytes, cudaMemcpyHostToDevice, stream);
    forward->enqueue(shape, on_device, expert_stream.get(), window_marks, stream,
                     gates.empty() ? nullptr : await_pages, captures);
    if (marked) stages_of[marked_kind()] = window_marks.stages();
    cudaMemcpyAsync(host_ids.data(), device_ids, ids_bytes, cudaMemcpyDeviceToHost, stream);
  };
  if (shape.streams_experts) expert_stream->begin(places, stream);
  // A graph cannot wait in the middle for what the host has not given yet, and a capture's row and slot are
  // no part of its shape.
  if (!shape.streams_experts && shape.rows <= options.graph_rows_max && gates.empty() && captures.empty()) {
    TRY_OK(graphs.launch({.shape = shape, .marked = marked}, enqueue, stream));
  } else {
    enqueue();
  }
  TRY_CUDA(cudaEventRecord(done, stream));
  TRY_CUDA(cudaGetLastError());
  return {};
}

Status CudaDevice::Impl::run(bool marked) {
  say("launching the window");
  if (shape.uses_boards) tender->begin();
  Status status = launch(marked);
  if (status.ok()) {
    say("the window runs, or waits for expert workers");
    status = await();
  }
  if (shape.uses_boards) count(counters.fallbacks, tender->end());
  return status;
}

Status CudaDevice::Impl::await() {
  for (;;) {
    const cudaError_t finished = cudaEventQuery(done);
    if (finished == cudaSuccess) return {};
    if (finished != cudaErrorNotReady) return cuda_status(finished, "the window");
    shm::relax(options.wait);
  }
}

// The sequence's n-gram context behind the first `count` rows of its segment; `context` may be that of the
// sequence itself.
void CudaDevice::Impl::context_behind(const SegmentInfo& segment, uint32_t count,
                                      std::span<int32_t> context) const {
  const std::vector<int32_t>& history = sequences[segment.sequence].ngram_context;
  const auto size = static_cast<uint32_t>(context.size());
  for (uint32_t i = 0; i < size; ++i)
    context[i] = count + i < size ? history[count + i] : tokens[segment.row_begin + count + i - size];
}

// What of the captured states is the host's.
Status CudaDevice::Impl::capture_contexts() {
  if (config.ngram_layer < 0 || captures.empty()) return {};
  int32_t memory[model::kNgramSizeMax];
  const std::span<int32_t> context(memory, config.ngram_size - 1);
  for (const StateCapture& capture : captures) {
    const SegmentInfo& segment = segments[segment_of_row[capture.row]];
    context_behind(segment, capture.row + 1 - segment.row_begin, context);
    // From pageable memory, as in at_boundary().
    TRY_CUDA(cudaMemcpyAsync(capture.to->ngram_context, context.data(), context.size_bytes(),
                             cudaMemcpyHostToDevice, stream));
  }
  return cuda_status(cudaStreamSynchronize(stream), "capturing states");
}

void CudaDevice::Impl::advance() {
  for (const SegmentInfo& segment : segments) {
    Sequence& sequence = sequences[segment.sequence];
    sequence.position += segment.row_count;
    context_behind(segment, segment.row_count, sequence.ngram_context);
  }
}

Status CudaDevice::Impl::choose(std::span<const DeviceRow> rows, std::vector<RowChoice>& choices) {
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const SampleResult& result = results.span()[i];
    RowChoice& choice =
        choices.emplace_back(RowChoice{.row = wanted[i].row, .usable = result.usable != 0, .token = {}});
    if (!choice.usable) continue;
    if (!wanted[i].on_host) {
      choice.token = sampled_token(result);
      continue;
    }
    TRY_CUDA(cudaMemcpyAsync(host_logits.data(), device_logits + i * config.vocab,
                             config.vocab * sizeof(float), cudaMemcpyDeviceToHost, stream));
    TRY_CUDA(cudaStreamSynchronize(stream));
    const SampleRequest& request = rows[wanted[i].row].sample;
    choice.token = sampler.sample(host_logits.span(), *request.params, request.position, request.prompt,
                                  request.generated, request.mask);
  }
  return {};
}

void CudaDevice::Impl::count_uses(std::span<const DeviceRow> rows) {
  const uint32_t used = config.experts_used;
  uint64_t hits = 0, copies = 0, misses = 0, prompt_rows = 0;
  for (const DeviceRow& row : rows) prompt_rows += row.is_prompt ? 1 : 0;
  const uint16_t* id = host_ids.data();
  for (uint32_t layer = 0; layer < config.layers; ++layer) {
    const auto& tables = shape.streams_experts ? places.with_copies() : places.with_boards();
    const uint32_t* layer_places = tables.data() + std::size_t{layer} * places.experts_max();
    uint64_t layer_hits[2] = {}, layer_misses[2] = {};  // of generated tokens, of prompts
    for (const DeviceRow& row : rows) {
      for (uint32_t k = 0; k < used; ++k, ++id) {
        const uint32_t place = layer_places[*id];
        const bool hit = place < kStreamed;
        ++(place == kMissing ? misses : hit ? hits : copies);
        ++(hit ? layer_hits : layer_misses)[row.is_prompt ? 1 : 0];
        count(row.is_prompt ? usage.prefill(layer, *id) : usage.decode(layer, *id), 1);
      }
    }
    shm::LayerUses& uses = usage.layer(layer);
    count(uses.decode_hits, layer_hits[0]);
    count(uses.prefill_hits, layer_hits[1]);
    count(uses.decode_misses, layer_misses[0]);
    count(uses.prefill_misses, layer_misses[1]);
  }
  count(counters.hits, hits);
  count(counters.copies, copies);
  count(counters.misses, misses);
  usage.window_finished({.prompt = prompt_rows, .generated = rows.size() - prompt_rows});
}

Result<std::unique_ptr<CudaDevice>> CudaDevice::create(const CudaDeviceOptions& options) {
  CHECK(options.routing == nullptr || options.plan.forced_routing, "the plan has no room for forced routing");
  auto impl = std::make_unique<Impl>(options);
  TRY_OK(impl->allocate());
  // Before anything of the file is registered: a copy's source must not lie half within such memory.
  TRY_OK(impl->make_forward());
  impl->registered = std::make_unique<RegisteredExperts>(*options.weights);
  return std::unique_ptr<CudaDevice>(new CudaDevice(std::move(impl)));
}

CudaDevice::CudaDevice(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

CudaDevice::~CudaDevice() {
  if (impl_->stream == nullptr) return;
  cudaStreamSynchronize(impl_->stream);
  cudaEventDestroy(impl_->done);
  cudaStreamDestroy(impl_->stream);
}

Result<SequenceId> CudaDevice::open_sequence() {
  for (uint32_t index = 0; index < impl_->sequences.size(); ++index) {
    Sequence& sequence = impl_->sequences[index];
    if (sequence.open) continue;
    for (const ClearedState& part : impl_->state.cleared)
      check_gpu(cuda_status(cudaMemsetAsync(part.base + index * part.bytes, 0, part.bytes, impl_->stream),
                            "clearing a sequence"));
    sequence.open = true;
    sequence.position = 0;
    std::ranges::fill(sequence.ngram_context, impl_->config.ngram_cut_token);
    return SequenceId{index, ++sequence.generation};
  }
  return fail(Code::kResourceExhausted, "all {} sequences are running (engine.sequences)",
              impl_->sequences.size());
}

void CudaDevice::close_sequence(SequenceId id) { impl_->sequence_of(id).open = false; }

void CudaDevice::capture(SequenceId from, uint32_t slot) {
  check_gpu(impl_->kept.capture(impl_->sequence_of(from).arrays, slot));
}

void CudaDevice::restore(SequenceId to, uint32_t slot, uint32_t tokens) {
  Sequence& sequence = impl_->sequence_of(to);
  check_gpu(impl_->kept.restore(sequence.arrays, slot));
  sequence.position = tokens;
}

void CudaDevice::copy_pages(SequenceId from, SequenceId to, uint32_t tokens) {
  check_gpu(impl_->kept.copy_pages(impl_->sequence_of(from).arrays, impl_->sequence_of(to).arrays, tokens));
}

Status CudaDevice::read_slot(uint32_t slot, std::span<std::byte> to) {
  return impl_->kept.read_slot(slot, to);
}

Status CudaDevice::write_slot(uint32_t slot, std::span<const std::byte> from) {
  return impl_->kept.write_slot(slot, from);
}

Status CudaDevice::read_page(SequenceId from, uint32_t page, uint32_t tokens, std::span<std::byte> to) {
  return impl_->kept.read_page(impl_->sequence_of(from).arrays, page, tokens, to);
}

Status CudaDevice::write_page(SequenceId to, uint32_t page, uint32_t tokens,
                              std::span<const std::byte> from) {
  return impl_->kept.write_page(impl_->sequence_of(to).arrays, page, tokens, from);
}

const StateLayout& CudaDevice::state_layout() const { return impl_->kept.layout(); }

uint32_t CudaDevice::checkpoint_slots() const { return impl_->kept.slot_count(); }

Status CudaDevice::run_window(std::span<const DeviceRow> rows, std::vector<RowChoice>& choices) {
  Impl& impl = *impl_;
  choices.clear();
  TRY_OK(impl.plan(rows));
  if (rows.empty()) return {};
  impl.say("looking up table rows");
  impl.fill_rows(rows);
  ++impl.windows;
  Status status = impl.at_boundary();
  const bool small = rows.size() <= impl.options.graph_rows_max;
  const bool marked = !small || impl.small_windows++ % kMarkEvery == 0;
  if (status.ok()) status = impl.run(marked);
  impl.options.workers->window_over();
  check_gpu(status);
  check_gpu(impl.capture_contexts());
  impl.advance();
  for (uint32_t index = 0; index < rows.size(); ++index) {
    const DeviceRow& row = rows[index];
    if (row.capture && is_last_of_sequence(rows, index)) capture(row.sequence, *row.capture);
  }
  impl.say("sampling on the host");
  check_gpu(impl.choose(rows, choices));
  impl.count_uses(rows);
  if (marked) {
    StageSeconds seconds = impl.marks.seconds(impl.stages_of[impl.marked_kind()]);
    if (small) {
      impl.small_stages = seconds;
    } else {
      impl.stages = sum_of(impl.stages, seconds);
    }
    if (impl.shape.streams_experts && impl.shape.uses_boards) {
      impl.cpu_share.window_took(impl.shape.rows, stage(seconds, Stage::kCpuWait),
                                 std::accumulate(seconds.begin(), seconds.end(), 0.0));
    }
  }
  // A small window without marks took what the last one with marks did.
  if (small) impl.stages = sum_of(impl.stages, impl.small_stages);
  impl.say("idle");
  return {};
}

uint32_t CudaDevice::prompt_multiple() const {
  return impl_->options.plan.limits.chunked_delta ? kDeltaChunk : 1;
}

std::span<const uint16_t> CudaDevice::routed() const {
  const std::size_t picks =
      std::size_t{impl_->config.layers} * impl_->shape.rows * impl_->config.experts_used;
  return {impl_->host_ids.data(), picks};
}

StageSeconds CudaDevice::take_stages() { return std::exchange(impl_->stages, StageSeconds{}); }

ArenaHandle CudaDevice::arena() const {
  const MemoryPlan& plan = impl_->options.plan.memory;
  ArenaHandle handle{.segment = {},
                     .cuda_ipc = {},
                     .bytes = impl_->arena.size(),
                     .instance_id = 0,
                     .slot_count = plan.slots,
                     .slot_bytes = plan.slot_bytes};
  handle.cuda_ipc.assign(reinterpret_cast<const char*>(&impl_->arena_ipc), sizeof(impl_->arena_ipc));
  return handle;
}

ResidentTable& CudaDevice::residents() { return *impl_->residents; }
const shm::UsageBoard& CudaDevice::usage() const { return impl_->usage; }
const DispatchCounters& CudaDevice::dispatch_counters() const { return impl_->counters; }

std::string CudaDevice::activity() const {
  return fmt::format("cuda device: {}", impl_->doing.load(std::memory_order_relaxed));
}

}  // namespace strata::gpu_worker::cuda
