#include "cpu-expert-worker/board_server.h"

#include <algorithm>

#include "services/base/check.h"
#include "services/obs/log.h"
#include "services/sys/cpus.h"

namespace strata::cpu_expert_worker {
namespace {

constexpr uint64_t open_word(uint32_t generation, uint32_t runs) { return uint64_t{generation} << 32 | runs; }
constexpr uint32_t runs_left(uint64_t word) { return static_cast<uint32_t>(word); }

}  // namespace

BoardServer::BoardServer(const BoardServerOptions& options) : options_(options), scratch_(options.threads) {
  CHECK(options_.threads >= 1 && (options_.cpus.empty() || options_.cpus.size() >= options_.threads),
        "{} threads, {} CPUs", options_.threads, options_.cpus.size());
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
    seen = start_.wait(seen, options_.wait, stop);
    work(lane);
  }
}

// Takes runs of the open request until none is left. A helper that comes late finds none, or those of the
// next request: both are right, since everything about a request is read only after one of its runs was
// taken.
void BoardServer::work(uint32_t lane) {
  // Acquire, here and below: pairs with the release in open(), so that whoever takes a run sees its request.
  uint64_t word = open_.load(std::memory_order_acquire);
  while (runs_left(word) != 0) {
    if (!open_.compare_exchange_weak(word, word - 1, std::memory_order_acquire, std::memory_order_acquire))
      continue;
    job_->compute(runs_left(word) - 1, scratch_[lane]);
    // Relaxed: only whether it moves is of interest.
    board_->header().progress.fetch_add(1, std::memory_order_relaxed);
    // Release: this run's parts go to whoever is last; acquire: the last one has everybody's parts.
    if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) finish_request();
    word = open_.load(std::memory_order_acquire);
  }
}

void BoardServer::open(uint32_t run_count) {
  // Relaxed: both are published by the store of open_.
  unfinished_.store(run_count, std::memory_order_relaxed);
  opened_.store(opened_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  // Release: whoever takes a run sees the request as the leader planned it.
  open_.store(open_word(++generation_, run_count), std::memory_order_release);
  if (run_count > 1 && !helpers_.empty()) start_.ring();
}

void BoardServer::finish_request() {
  shm::BoardHeader& header = board_->header();
  const uint64_t ticket = job_->ticket();
  const double jobs = job_->run_count();
  const auto bytes_read = static_cast<double>(job_->weight_bytes());
  const std::chrono::duration<double> busy = std::chrono::steady_clock::now() - job_->taken_at();
  // Release: all parts are visible to the gpu-worker when it sees the ticket. From here on the leader may
  // plan the next request, so the job is not touched any more.
  header.done_ticket.store(ticket, std::memory_order_release);
  header.done.ring();
  if (options_.probe != nullptr) {
    options_.probe->busy_seconds.Increment(busy.count());
    options_.probe->jobs.Increment(jobs);
    options_.probe->bytes_read.Increment(bytes_read);
  }
  // Release: this thread's last use of the board comes before serve() returns.
  closed_.fetch_add(1, std::memory_order_release);
}

Status BoardServer::serve_request() {
  TRY_OK(job_->read(*board_));
  open(job_->run_count());
  work(0);
  return {};
}

Status BoardServer::serve(shm::Board& board, const std::function<bool()>& stop) {
  uint32_t width_max = 0;
  for (const model::LayerExperts& layer : options_.layers) {
    width_max = std::max(width_max, layer.width);
    if (layer.hidden != board.geometry().hidden) {
      return fail(Code::kFailedPrecondition, "the board has rows of {} values, the model of {}",
                  board.geometry().hidden, layer.hidden);
    }
  }
  pin(0);
  for (expert::ExpertScratch& scratch : scratch_) scratch.reserve(board.geometry().tokens_max, width_max);
  job_.emplace(options_.layers, board.geometry());
  board_ = &board;

  Status status;
  shm::BoardHeader& header = board.header();
  // A new board begins with seq 0: a request that was rung before we came is seen at once.
  uint32_t seen = 0;
  while (status.ok() && !stop()) {
    const uint32_t now = header.work.wait(seen, options_.wait, stop);
    if (now == seen) continue;
    seen = now;
    status = serve_request();
  }
  // Helpers may still be at work on the last request. Acquire: their uses of the board come before our
  // return.
  while (closed_.load(std::memory_order_acquire) != opened_.load(std::memory_order_relaxed))
    std::this_thread::yield();
  return status;
}

}  // namespace strata::cpu_expert_worker
