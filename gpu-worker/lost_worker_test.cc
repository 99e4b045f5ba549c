// An expert worker that dies or stops at any step of a request: it is fenced, and the window completes with
// the same bits.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <thread>

#include "cpu-expert-worker/expert_job.h"
#include "gpu-worker/expert_dispatch.h"
#include "tests/support/expert_board_support.h"
#include "tests/support/test_data.h"

namespace strata::gpu_worker {
namespace {

using quant::Numerics;

constexpr uint32_t kTokens = 12;
constexpr uint32_t kLostAfterMs = 200;

enum class Step {
  kBeforeComputing,
  kAfterOneExpert,
  kAfterAllParts,
  kAfterDoneTicket,
  // Of a worker with several threads, about then: rows of gate and up, rows of down.
  kInTheIntermediateStage,
  kInTheOutputStage,
};
struct Fault {
  const char* name;
  Step step;
  int signal;
};

class LostWorkerTest : public testing::TestWithParam<Fault> {
 protected:
  LostWorkerTest()
      : weights_(open_model(tests::models_golden_model().string())), layers_(experts_of(weights_)) {}
  void TearDown() override { shm::remove_stale_segments(run_); }

  // The worker as it is, with three threads that share every expert. Its fault comes when so many pieces of
  // request `when` are done that one stage has begun and is hardly over; wherever it hits, the outcome is the
  // same.
  void serve_by_threads(shm::Board& board, uint64_t when, Step at, int signal) const {
    constexpr uint32_t kThreads = 3;
    // Each thread takes its whole share of a stage at once: a stage is three pieces.
    const uint64_t pieces = at == Step::kInTheIntermediateStage ? 1 : kThreads + 1;
    cpu_expert_worker::BoardServer server(
        {.layers = layers_,
         .threads = kThreads,
         .wait = {.yield = true, .park_after_us = 200},
         .rules = {.split = cpu_expert_worker::SplitRule::kAll, .unit_bytes = 1, .take_parts = 1}});
    const shm::BoardHeader& header = board.header();
    const auto done = [&] { return header.done_ticket.load(std::memory_order_acquire); };
    std::thread watcher([&] {
      while (done() + 1 < when) std::this_thread::yield();
      const uint64_t before = header.all_progress();
      while (done() < when && header.all_progress() < before + pieces) std::this_thread::yield();
      kill(getpid(), signal);
    });
    static_cast<void>(server.serve(board, [] { return false; }));
    _exit(5);
  }

  // The worker's side with one thread; gets its fault in request `when`.
  void serve(shm::Board& board, uint64_t when, Step at, int signal) const {
    if (at == Step::kInTheIntermediateStage || at == Step::kInTheOutputStage)
      return serve_by_threads(board, when, at, signal);
    cpu_expert_worker::ExpertJob job(layers_, board.geometry(), 1);
    cpu_expert_worker::JobScratch scratch;
    shm::BoardHeader& header = board.header();
    uint32_t seen = 0;
    for (;;) {
      seen = header.work.wait(seen, {.yield = true, .park_after_us = 200}, {});
      if (!job.read(board).ok()) _exit(5);
      const auto fault = [&](Step step) {
        if (step == at && job.ticket() == when) kill(getpid(), signal);
      };
      fault(Step::kBeforeComputing);
      for (uint32_t expert = 0; expert < job.expert_count(); ++expert) {
        job.compute(cpu_expert_worker::Stage::kWhole, {expert, expert + 1}, scratch);
        header.progress_of(0).fetch_add(1, std::memory_order_relaxed);
        if (expert == 0) fault(Step::kAfterOneExpert);
      }
      fault(Step::kAfterAllParts);
      header.done_ticket.store(job.ticket(), std::memory_order_release);
      fault(Step::kAfterDoneTicket);
      header.done.ring();
    }
  }

  ExpertWorkersOptions worker_options(uint32_t board_tokens) const {
    return {.run_id = run_,
            .geometry = {.hidden = weights_.config.hidden,
                         .tokens_max = board_tokens,
                         .pairs_max = board_tokens * weights_.config.experts_used},
            .lost_after_ms = kLostAfterMs,
            .expected = 2};
  }

  // A window over all layers with the worker failing in request 3; another worker, if any, goes on.
  void expect_window_to_complete(ExpertWorkers& workers, ForkedWorker& failing) {
    const ChosenResidents residents(weights_, [](uint32_t, uint32_t e) { return e % 4 == 0; });
    model::Parallel parallel(1);
    ExpertDispatch dispatch({.weights = &weights_,
                             .numerics = Numerics::kReproducible,
                             .residents = &residents,
                             .workers = &workers,
                             .usage = nullptr,
                             .parallel = &parallel,
                             .tokens_max = kTokens});
    const auto start = std::chrono::steady_clock::now();
    for (int window = 0; window < 2; ++window) {
      dispatch.begin_window(std::vector<uint8_t>(kTokens, 0));
      for (uint32_t layer = 0; layer < layers_.size(); ++layer) {
        const MadeUpLayer made_up(weights_, layer, kTokens, Numerics::kReproducible, layer);
        ASSERT_TRUE(same_bits(dispatched_parts(dispatch, weights_, made_up),
                              reference_parts(weights_, made_up, Numerics::kReproducible)))
            << "window " << window << " layer " << layer;
      }
    }
    // The budget once (ten times that under sanitizers), and much room for a loaded machine.
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(40));
    EXPECT_GT(dispatch.counters().fallbacks, 0U);
    EXPECT_TRUE(failing.process().gone()) << "fenced";
    const std::string reason = workers.detach(failing.attached());
    EXPECT_TRUE(GetParam().signal == SIGKILL ? reason == "its process ended" : reason.ends_with("ms, killed"))
        << reason;
    EXPECT_FALSE(failing.board_can_be_attached());
    const std::vector<std::string> missing = workers.missing();
    EXPECT_NE(std::ranges::find(missing, "cpu-expert-worker-0"), missing.end());
  }

  std::string run_ = fmt::format("{:08x}", static_cast<uint32_t>(shm::random_instance_id()));
  model::ModelWeights weights_;
  std::vector<model::LayerExperts> layers_;
};

TEST_P(LostWorkerTest, CompletesTheWindowWithTheSameBits) {
  ForkedWorker failing([this](shm::Board& board) { serve(board, 3, GetParam().step, GetParam().signal); });
  ExpertWorkers workers(worker_options(kTokens));
  failing.attach(workers, "cpu-expert-worker-0");
  expect_window_to_complete(workers, failing);
}

TEST_P(LostWorkerTest, CompletesTheWindowBesideAWorkerThatGoesOn) {
  ForkedWorker failing([this](shm::Board& board) { serve(board, 3, GetParam().step, GetParam().signal); });
  ForkedWorker healthy([this](shm::Board& board) { serve(board, UINT64_MAX, Step::kBeforeComputing, 0); });
  ExpertWorkers workers(worker_options(kTokens));
  failing.attach(workers, "cpu-expert-worker-0");
  healthy.attach(workers, "cpu-expert-worker-1");
  expect_window_to_complete(workers, failing);
  EXPECT_FALSE(healthy.process().gone());
  EXPECT_FALSE(healthy.attached()->retired);
}

// Requests of 4 tokens: the third is in the middle of a layer, whose first pieces have been done.
TEST_P(LostWorkerTest, CompletesALayerOfSeveralPieces) {
  ForkedWorker failing([this](shm::Board& board) { serve(board, 2, GetParam().step, GetParam().signal); });
  ExpertWorkers workers(worker_options(4));
  failing.attach(workers, "cpu-expert-worker-0");
  expect_window_to_complete(workers, failing);
}

INSTANTIATE_TEST_SUITE_P(Faults, LostWorkerTest,
                         testing::Values(Fault{"KilledBeforeComputing", Step::kBeforeComputing, SIGKILL},
                                         Fault{"KilledAfterOneExpert", Step::kAfterOneExpert, SIGKILL},
                                         Fault{"KilledAfterAllParts", Step::kAfterAllParts, SIGKILL},
                                         Fault{"KilledAfterDoneTicket", Step::kAfterDoneTicket, SIGKILL},
                                         Fault{"KilledWithThreadsAtGateAndUp", Step::kInTheIntermediateStage,
                                               SIGKILL},
                                         Fault{"KilledWithThreadsAtDown", Step::kInTheOutputStage, SIGKILL},
                                         Fault{"StoppedWithThreadsAtDown", Step::kInTheOutputStage, SIGSTOP},
                                         Fault{"StoppedBeforeComputing", Step::kBeforeComputing, SIGSTOP},
                                         Fault{"StoppedAfterOneExpert", Step::kAfterOneExpert, SIGSTOP},
                                         Fault{"StoppedAfterDoneTicket", Step::kAfterDoneTicket, SIGSTOP}),
                         [](const auto& fault) { return std::string(fault.param.name); });

// Nothing is in flight: the loss is noticed at the window boundary.
TEST(IdleLossTest, ForgetsAWorkerThatDiedBetweenWindows) {
  const std::string run = fmt::format("{:08x}", static_cast<uint32_t>(shm::random_instance_id()));
  ForkedWorker worker([](shm::Board&) { pause(); });
  ExpertWorkers workers({.run_id = run, .geometry = {.hidden = 32, .tokens_max = 1, .pairs_max = 2}});
  worker.attach(workers, "cpu-expert-worker-0");
  EXPECT_EQ(workers.at_window_boundary().size(), 1U);
  EXPECT_TRUE(workers.missing().empty());
  ASSERT_TRUE(worker.process().kill_and_wait(60'000));
  EXPECT_TRUE(workers.at_window_boundary().empty());
  EXPECT_EQ(workers.missing(), std::vector<std::string>{"cpu-expert-worker-0"});
  EXPECT_EQ(workers.detach(worker.attached()), "its process ended");
}

}  // namespace
}  // namespace strata::gpu_worker
