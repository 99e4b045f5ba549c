#include "cpu-expert-worker/board_server.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "services/base/check.h"
#include "services/base/counter.h"
#include "services/obs/log.h"
#include "services/sys/cpus.h"

namespace strata::cpu_expert_worker {
namespace {

uint64_t nanoseconds(std::chrono::steady_clock::duration time) {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(time).count());
}

}  // namespace

BoardServer::BoardServer(const BoardServerOptions& options)
    : options_(options),
      scratch_(options.threads),
      counters_(options.threads),
      shares_(options.threads, options.rules.take_parts),
      helper_wait_(options.wait) {
  CHECK(options_.threads >= 1 && (options_.cpus.empty() || options_.cpus.size() >= options_.threads),
        "{} threads, {} CPUs", options_.threads, options_.cpus.size());
  helper_wait_.awake_while = &window_open_;
  for (uint32_t lane = 1; lane < options_.threads; ++lane)
    helpers_.emplace_back([this, lane] { helper_loop(lane); });
}

BoardServer::~BoardServer() {
  stopping_.store(true, std::memory_order_relaxed);
  start_.ring();
  for (std::thread& helper : helpers_) helper.join();
}

void BoardServer::pin(uint32_t lane) const {
  if (options_.cpus.empty()) return;
  const Status status = sys::pin_this_thread(options_.cpus[lane]);
  if (!status.ok()) obs::warn("experts", "{}; the thread runs where it likes", status.message());
}

void BoardServer::helper_loop(uint32_t lane) {
  sys::name_this_thread(fmt::format("expert-{}", lane));
  pin(lane);
  const std::function<bool()> stop = [this] { return stopping_.load(std::memory_order_relaxed); };
  uint32_t seen = 0;
  while (!stop()) {
    seen = start_.wait(seen, helper_wait_, stop);
    work(lane);
  }
}

void BoardServer::compute_all(const WorkShares::Round& round, Stage stage, uint32_t lane) {
  bool looks_ahead = stage == Stage::kIntermediate;
  for (auto claim = shares_.take(round, stage, lane); !claim.empty();
       claim = shares_.take(round, stage, lane)) {
    if (std::exchange(looks_ahead, false)) {
      job_->look_ahead(shares_.share(round, stage, lane), shares_.share(round, Stage::kOutput, lane),
                       scratch_[lane]);
    }
    job_->compute(stage, claim, scratch_[lane]);
    // Before finish(): after it the board may be gone. Relaxed: only whether it moves is of interest.
    board_->header().progress_of(lane).fetch_add(1, std::memory_order_relaxed);
    shares_.finish(round, stage, lane, claim);
  }
}

// What it asks for was planned while this thread held a claim; the request may be over by now.
void BoardServer::wait_and_fetch(const WorkShares::Round& round, JobScratch& scratch) const {
  constexpr std::size_t kLine = 64, kAtOnce = 8 * kLine;
  auto& rows = scratch.output_rows;
  std::size_t next = 0;
  while (!shares_.complete(round, Stage::kIntermediate)) {
    if (next == rows.size()) {
      shm::relax(options_.wait);
      continue;
    }
    const auto piece = rows[next].first(std::min(rows[next].size(), kAtOnce));
    for (std::size_t at = 0; at < piece.size(); at += kLine) __builtin_prefetch(piece.data() + at, 0, 2);
    rows[next] = rows[next].subspan(piece.size());
    if (rows[next].empty()) ++next;
  }
  rows.clear();
}

void BoardServer::wait_complete(const WorkShares::Round& round, Stage stage) const {
  // For what other threads compute at this moment: short, so nobody sleeps.
  while (!shares_.complete(round, stage)) shm::relax(options_.wait);
}

// A helper that comes late finds the round over, or the next one open: both are right, since nothing of a
// request is read before one of its units was taken.
void BoardServer::work(uint32_t lane) {
  const WorkShares::Round round = shares_.current();
  const Clock::time_point begin = Clock::now();
  compute_all(round, Stage::kWhole, lane);
  compute_all(round, Stage::kIntermediate, lane);
  const Clock::time_point halfway = Clock::now();
  Clock::duration busy = halfway - begin;
  if (round.of(Stage::kOutput) > 0) {
    wait_and_fetch(round, scratch_[lane]);
    const Clock::time_point again = Clock::now();
    compute_all(round, Stage::kOutput, lane);
    busy += Clock::now() - again;
  }
  count(counters_.threads[lane].busy_ns, nanoseconds(busy));
}

void BoardServer::answer() {
  shm::BoardHeader& header = board_->header();
  // Release: all parts are visible to the gpu-worker when it sees the ticket.
  header.done_ticket.store(job_->ticket(), std::memory_order_release);
  header.done.ring();
  count(counters_.busy_ns, nanoseconds(Clock::now() - job_->taken_at()));
  count(counters_.experts, job_->expert_count());
  count(counters_.weight_bytes, job_->weight_bytes());
}

Status BoardServer::serve_request() {
  TRY_OK(job_->read(*board_));
  const StageUnits& units = job_->units();
  shares_.open(units);
  uint32_t all_units = 0;
  for (const uint32_t stage_units : units) all_units += stage_units;
  if (all_units > 1 && !helpers_.empty()) start_.ring();
  const WorkShares::Round round = shares_.current();
  work(0);
  wait_complete(round, Stage::kWhole);
  wait_complete(round, Stage::kOutput);
  answer();
  return {};
}

// Helpers sleep and wake with the leader: the window's first request finds them awake.
void BoardServer::follow_window(const shm::BoardHeader& header) {
  const uint32_t open = header.window_open.load(std::memory_order_relaxed);
  if (open == window_open_.load(std::memory_order_relaxed)) return;
  window_open_.store(open, std::memory_order_relaxed);
  if (open != 0 && !helpers_.empty()) start_.wake();
}

Status BoardServer::serve(shm::Board& board, const std::function<bool()>& stop) {
  for (const model::LayerExperts& layer : options_.layers) {
    if (layer.hidden != board.geometry().hidden) {
      return fail(Code::kFailedPrecondition, "the board has rows of {} values, the model of {}",
                  board.geometry().hidden, layer.hidden);
    }
  }
  pin(0);
  job_.emplace(options_.layers, board.geometry(), options_.threads, options_.rules);
  for (JobScratch& scratch : scratch_) job_->prepare(scratch);
  board_ = &board;

  Status status;
  shm::BoardHeader& header = board.header();
  shm::WaitPolicy wait = options_.wait;
  wait.awake_while = &header.window_open;
  const std::function<bool()> stop_or_follow = [&] {
    follow_window(header);
    return stop();
  };
  // A new board begins with seq 0: a request that was rung before we came is seen at once.
  uint32_t seen = 0;
  while (status.ok() && !stop_or_follow()) {
    const uint32_t now = header.work.wait(seen, wait, stop_or_follow);
    if (now == seen) continue;
    seen = now;
    status = serve_request();
  }
  window_open_.store(0, std::memory_order_relaxed);
  return status;
}

}  // namespace strata::cpu_expert_worker
