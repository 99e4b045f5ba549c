#include "gpu-worker/cuda/mapped_boards.h"

#include <algorithm>
#include <utility>

#include "gpu-worker/cuda/runtime.h"

namespace strata::gpu_worker::cuda {
namespace {

using Clock = std::chrono::steady_clock;

// Whether a process still lives is a system call.
constexpr std::chrono::milliseconds kLookEvery(2);
// A killed process that hangs in the kernel runs no instruction of its own any more.
constexpr uint32_t kKillTimeoutMs = 5000;

}  // namespace

Result<MappedBoard> MappedBoard::create(const shm::Board& board) {
  MappedBoard mapped;
  std::byte* base = board.segment().data();
  TRY_CUDA(
      cudaHostRegister(base, board.segment().bytes(), cudaHostRegisterMapped | cudaHostRegisterPortable));
  mapped.registered_ = base;
  void* device = nullptr;
  TRY_CUDA(cudaHostGetDevicePointer(&device, base, 0));
  const auto address = [&](const void* member) {
    return static_cast<std::byte*>(device) + (static_cast<const std::byte*>(member) - base);
  };
  shm::BoardHeader& header = board.header();
  const shm::BoardGeometry& geometry = board.geometry();
  mapped.addresses_ = {.request = reinterpret_cast<shm::BoardRequest*>(address(&header.request)),
                       .pairs = reinterpret_cast<shm::BoardPair*>(address(board.pairs())),
                       .activations = address(board.activations(0)),
                       .activation_row_bytes = geometry.activation_row_bytes(),
                       .parts = reinterpret_cast<float*>(address(board.part(0))),
                       .part_row_floats = geometry.part_row_bytes() / sizeof(float),
                       .work_seq = reinterpret_cast<uint32_t*>(address(&header.work.seq)),
                       .done_ticket = reinterpret_cast<const uint64_t*>(address(&header.done_ticket))};
  return mapped;
}

MappedBoard::MappedBoard(MappedBoard&& other) noexcept
    : registered_(std::exchange(other.registered_, nullptr)), addresses_(other.addresses_) {}

MappedBoard& MappedBoard::operator=(MappedBoard&& other) noexcept {
  std::swap(registered_, other.registered_);
  std::swap(addresses_, other.addresses_);
  return *this;
}

MappedBoard::~MappedBoard() {
  if (registered_ != nullptr) cudaHostUnregister(registered_);
}

Result<MappedBoards> MappedBoards::create(const MappedBoardsOptions& options) {
  MappedBoards boards(options);
  const std::string name = shm::segment_name(options.run_id, "own-board", shm::random_instance_id());
  TRY(shm::Board own, shm::Board::create(name, options.geometry));
  boards.own_ = std::make_unique<shm::Board>(std::move(own));
  boards.own_->segment().unlink();  // nobody attaches
  TRY_OK(boards.add(nullptr));
  return boards;
}

Status MappedBoards::add(std::shared_ptr<AttachedWorker> worker) {
  const shm::Board* board = worker == nullptr ? own_.get() : &worker->board;
  TRY(MappedBoard mapped, MappedBoard::create(*board));
  table_.boards[entries_.size()] = mapped.addresses();
  entries_.push_back({.worker = std::move(worker), .board = board, .mapped = std::move(mapped)});
  table_.count = static_cast<uint32_t>(entries_.size());
  return {};
}

Result<bool> MappedBoards::update() {
  const auto& workers = options_.workers->at_window_boundary();
  std::vector<std::shared_ptr<AttachedWorker>> wanted;
  for (const auto& worker : workers) {
    if (!worker->retired.load(std::memory_order_relaxed)) wanted.push_back(worker);
  }
  if (wanted.empty()) wanted.push_back(nullptr);
  if (std::ranges::equal(wanted, entries_, {}, {}, &Entry::worker)) return false;
  entries_.clear();
  table_ = {};
  for (auto& worker : wanted) TRY_OK(add(std::move(worker)));
  return true;
}

BoardTickets MappedBoards::tickets() const {
  BoardTickets tickets = {};
  for (std::size_t i = 0; i < entries_.size(); ++i)
    tickets.rung[i] = entries_[i].board->header().request.ticket;
  return tickets;
}

bool MappedBoards::answers_here() const {
  return std::ranges::any_of(entries_,
                             [](const Entry& entry) { return entry.worker == nullptr || entry.lost; });
}

uint32_t MappedBoards::tend() {
  const Clock::time_point now = Clock::now();
  const bool look = now - looked_at_ >= kLookEvery;
  if (look) looked_at_ = now;
  uint32_t pairs = 0;
  for (Entry& entry : entries_) {
    const bool own = entry.worker == nullptr || entry.lost;
    if ((!own && !look) || !BoardSubstitute::is_asked(*entry.board)) continue;
    if (!own) {
      const shm::BoardRequest& request = entry.board->header().request;
      if (std::exchange(entry.watched_ticket, request.ticket) != request.ticket) entry.watch = {};
      entry.lost = options_.workers->is_lost(*entry.worker, request.pair_count, entry.watch);
      // Also one that only left may still be writing: from here on nobody else does.
      if (entry.lost) entry.worker->process.kill_and_wait(kKillTimeoutMs);
      // Asked again: it may have answered with its last breath.
      if (!entry.lost || !BoardSubstitute::is_asked(*entry.board)) continue;
    }
    pairs += options_.substitute->answer(*entry.board);
  }
  return pairs;
}

}  // namespace strata::gpu_worker::cuda
