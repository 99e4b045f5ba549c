#include "services/shm/board.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <string>
#include <thread>

#include "services/sys/process.h"

namespace strata::shm {
namespace {

constexpr uint64_t kDeadlineUs = 60'000'000;
constexpr WaitPolicy kWait{.yield = true, .park_after_us = 200};
constexpr BoardGeometry kGeometry{.hidden = 96, .tokens_max = 4, .pairs_max = 8};

// What the tests compute instead of an expert: any function of the row and the expert will do.
float made_up_part(float activation, uint32_t expert) { return activation * 2 + static_cast<float>(expert); }

class BoardTest : public testing::Test {
 protected:
  void TearDown() override { remove_stale_segments(run_); }
  Result<Board> create(const BoardGeometry& geometry = kGeometry) {
    return Board::create(segment_name(run_, "board", random_instance_id()), geometry);
  }
  static Result<Board> attach(const Board& board) {
    return Board::attach(board.segment().name(), board.segment().bytes(), board.segment().instance_id());
  }

  static void request(Board& board, uint64_t ticket) {
    for (uint32_t token = 0; token < kGeometry.tokens_max; ++token) {
      auto* row = reinterpret_cast<float*>(board.activations(token));
      for (uint32_t i = 0; i < kGeometry.hidden; ++i) row[i] = static_cast<float>(ticket * 10 + token);
    }
    for (uint16_t pair = 0; pair < kGeometry.pairs_max; ++pair) {
      board.pairs()[pair] = {.token = static_cast<uint16_t>(pair % kGeometry.tokens_max), .expert = pair};
    }
    board.header().request = {.ticket = ticket,
                              .layer = 1,
                              .tokens = kGeometry.tokens_max,
                              .pair_count = kGeometry.pairs_max,
                              .activations = ActivationKind::kF32,
                              .numerics = 0};
    board.header().work.ring();
  }

  enum class Step { kBeforeWork, kAfterHalfTheParts, kAfterAllParts, kAfterDoneTicket, kNever };

  // The worker's side of the protocol; `die_at` ends the process there in request `die_in`.
  static void serve(Board& board, uint64_t requests, Step die_at = Step::kNever, uint64_t die_in = 0) {
    BoardHeader& header = board.header();
    uint32_t seen = 0;
    for (uint64_t done = 0; done < requests; ++done) {
      const uint32_t now = header.work.wait(seen, kWait, {}, kDeadlineUs);
      if (now == seen) return;
      seen = now;
      const auto die = [&](Step step) {
        if (step == die_at && done + 1 == die_in) kill(getpid(), SIGKILL);
      };
      const BoardRequest request = header.request;
      die(Step::kBeforeWork);
      for (uint32_t pair = 0; pair < request.pair_count; ++pair) {
        if (pair == request.pair_count / 2) die(Step::kAfterHalfTheParts);
        const BoardPair which = board.pairs()[pair];
        const auto* row = reinterpret_cast<const float*>(board.activations(which.token));
        for (uint32_t i = 0; i < kGeometry.hidden; ++i)
          board.part(pair)[i] = made_up_part(row[i], which.expert);
        header.progress_of(0).fetch_add(1, std::memory_order_relaxed);
      }
      die(Step::kAfterAllParts);
      header.done_ticket.store(request.ticket, std::memory_order_release);
      die(Step::kAfterDoneTicket);
      header.done.ring();
    }
  }

  // True when the request is done; false when `gone` says that the worker will never do it.
  static bool wait_done(Board& board, uint64_t ticket, const std::function<bool()>& gone) {
    BoardHeader& header = board.header();
    for (int slices = 0; slices < 60'000; ++slices) {
      const uint32_t seen = header.done.seq.load(std::memory_order_acquire);
      if (header.done_ticket.load(std::memory_order_acquire) >= ticket) return true;
      if (gone()) return header.done_ticket.load(std::memory_order_acquire) >= ticket;
      header.done.wait(seen, kWait, {}, 1000);
    }
    ADD_FAILURE() << "request " << ticket << " neither done nor lost";
    return false;
  }

  static void expect_parts(const Board& board, uint64_t ticket) {
    for (uint32_t pair = 0; pair < kGeometry.pairs_max; ++pair) {
      const float activation = static_cast<float>(ticket * 10 + pair % kGeometry.tokens_max);
      for (uint32_t i = 0; i < kGeometry.hidden; ++i)
        ASSERT_EQ(board.part(pair)[i], made_up_part(activation, pair));
    }
  }

  std::string run_ = fmt::format("{:08x}", static_cast<uint32_t>(random_instance_id()));
};

TEST_F(BoardTest, LaysOutItsAreasWithoutOverlapOnCacheLines) {
  for (uint32_t hidden : {1U, 32U, 96U, 2560U}) {
    for (uint32_t tokens : {1U, 7U, kBoardTokensMax}) {
      const BoardGeometry geometry{.hidden = hidden, .tokens_max = tokens, .pairs_max = tokens * 10};
      EXPECT_GE(geometry.activations_offset(),
                geometry.pairs_offset() + geometry.pairs_max * sizeof(BoardPair));
      EXPECT_GE(geometry.parts_offset(), geometry.activations_offset() + tokens * hidden * sizeof(float));
      EXPECT_GE(geometry.segment_bytes(),
                geometry.parts_offset() + geometry.pairs_max * hidden * sizeof(float));
      for (uint64_t offset : {geometry.pairs_offset(), geometry.activations_offset(), geometry.parts_offset(),
                              geometry.activation_row_bytes(), geometry.part_row_bytes()}) {
        EXPECT_EQ(offset % kCacheLine, 0U);
      }
    }
  }
}

TEST_F(BoardTest, RefusesAGeometryBeyondTheLimits) {
  for (const BoardGeometry& geometry :
       {BoardGeometry{.hidden = 0, .tokens_max = 1, .pairs_max = 1},
        BoardGeometry{.hidden = UINT32_MAX, .tokens_max = 1, .pairs_max = 1},
        BoardGeometry{.hidden = 32, .tokens_max = 0, .pairs_max = 0},
        BoardGeometry{.hidden = 32, .tokens_max = kBoardTokensMax + 1, .pairs_max = 4096},
        BoardGeometry{.hidden = 32, .tokens_max = 4, .pairs_max = 3},
        BoardGeometry{.hidden = 32, .tokens_max = 4, .pairs_max = UINT32_MAX}}) {
    auto board = create(geometry);
    ASSERT_FALSE(board);
    EXPECT_EQ(board.error().code(), Code::kInvalidArgument);
  }
}

TEST_F(BoardTest, AttachesWithTheGeometryThatItWasCreatedWith) {
  auto owner = create();
  ASSERT_TRUE(owner) << owner.error().message();
  auto worker = attach(*owner);
  ASSERT_TRUE(worker) << worker.error().message();
  EXPECT_EQ(worker->geometry(), kGeometry);
  owner->part(7)[95] = 3.5F;
  EXPECT_EQ(worker->part(7)[95], 3.5F);
  EXPECT_EQ(reinterpret_cast<std::byte*>(worker->part(7) + 96),
            worker->segment().data() + worker->segment().bytes());
}

TEST_F(BoardTest, RefusesAGeometryThatDoesNotFitTheSegment) {
  auto owner = create();
  ASSERT_TRUE(owner);
  BoardGeometry& geometry = owner->header().geometry;
  const auto refused = [&](const BoardGeometry& lie) {
    geometry = lie;
    auto worker = attach(*owner);
    geometry = kGeometry;
    return !worker && worker.error().code() == Code::kFailedPrecondition;
  };
  EXPECT_TRUE(refused({.hidden = 96 + 16, .tokens_max = 4, .pairs_max = 8}));
  EXPECT_TRUE(refused({.hidden = 96, .tokens_max = 5, .pairs_max = 8}));
  EXPECT_TRUE(refused({.hidden = 96, .tokens_max = 4, .pairs_max = 9}));
  EXPECT_TRUE(refused({.hidden = UINT32_MAX, .tokens_max = UINT32_MAX, .pairs_max = UINT32_MAX}));
  EXPECT_TRUE(refused({.hidden = 0, .tokens_max = 0, .pairs_max = 0}));
  EXPECT_TRUE(attach(*owner));
}

TEST_F(BoardTest, CanNotBeAttachedOnceItIsRetired) {
  auto owner = create();
  ASSERT_TRUE(owner);
  owner->segment().unlink();
  auto worker = attach(*owner);
  ASSERT_FALSE(worker);
  EXPECT_EQ(worker.error().code(), Code::kNotFound);
}

// Both sides on one mapping, so that ThreadSanitizer sees that request and parts are ordered by the doorbells
// alone.
TEST_F(BoardTest, HandsRequestsAndPartsBetweenThreads) {
  constexpr uint64_t kRequests = 500;
  auto board = create();
  ASSERT_TRUE(board);
  std::thread worker([&] { serve(*board, kRequests); });
  for (uint64_t ticket = 1; ticket <= kRequests; ++ticket) {
    request(*board, ticket);
    ASSERT_TRUE(wait_done(*board, ticket, [] { return false; }));
    expect_parts(*board, ticket);
  }
  worker.join();
  EXPECT_EQ(board->header().all_progress(), kRequests * kGeometry.pairs_max);
}

class TwoProcessBoardTest : public BoardTest {
 protected:
  // A child that attaches as a stranger would, serves and ends at a step.
  static sys::ProcessHandle fork_worker(const Board& board, uint64_t requests, Step die_at, uint64_t die_in) {
    const pid_t pid = fork();
    if (pid == 0) {
      auto mine = attach(board);
      if (!mine) _exit(3);
      serve(*mine, requests, die_at, die_in);
      _exit(0);
    }
    auto process = sys::ProcessHandle::open(static_cast<uint32_t>(pid));
    EXPECT_TRUE(process);
    return std::move(*process);
  }
};

TEST_F(TwoProcessBoardTest, HandsRequestsAndPartsBetweenProcesses) {
  constexpr uint64_t kRequests = 200;
  auto board = create();
  ASSERT_TRUE(board);
  sys::ProcessHandle worker = fork_worker(*board, kRequests, Step::kNever, 0);
  for (uint64_t ticket = 1; ticket <= kRequests; ++ticket) {
    request(*board, ticket);
    ASSERT_TRUE(wait_done(*board, ticket, [&] { return worker.gone(); }));
    expect_parts(*board, ticket);
  }
  EXPECT_TRUE(worker.kill_and_wait(60'000));
  EXPECT_TRUE(sys::reap(worker));
}

// Whatever step the worker dies at, the other side either gets complete parts or learns that they will not
// come.
TEST_F(TwoProcessBoardTest, LosesOnlyTheRequestThatAKilledWorkerHadNotFinished) {
  for (Step step :
       {Step::kBeforeWork, Step::kAfterHalfTheParts, Step::kAfterAllParts, Step::kAfterDoneTicket}) {
    SCOPED_TRACE(static_cast<int>(step));
    auto board = create();
    ASSERT_TRUE(board);
    sys::ProcessHandle worker = fork_worker(*board, 10, step, 3);
    const auto gone = [&] { return worker.gone(); };
    for (uint64_t ticket = 1; ticket <= 2; ++ticket) {
      request(*board, ticket);
      ASSERT_TRUE(wait_done(*board, ticket, gone));
      expect_parts(*board, ticket);
    }
    request(*board, 3);
    const bool done = wait_done(*board, 3, gone);
    EXPECT_EQ(done, step == Step::kAfterDoneTicket);
    if (done) expect_parts(*board, 3);
    EXPECT_TRUE(worker.kill_and_wait(60'000));
    auto end = sys::reap(worker);
    ASSERT_TRUE(end);
    EXPECT_EQ(end->text(), "signal 9 (Killed)") << "exit 3: it could not attach";
  }
}

// The other way round: a killed gpu-worker leaves the worker waiting, never with half a request.
TEST_F(TwoProcessBoardTest, KeepsAWorkerWaitingWhenTheOwnerDies) {
  const std::string name = segment_name(run_, "board", random_instance_id());
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    auto board = Board::create(name, kGeometry);
    const uint64_t facts[2] = {board->segment().bytes(), board->segment().instance_id()};
    static_cast<void>(!write(ends[1], facts, sizeof(facts)));
    // Half a request: written, never rung.
    board->header().request.ticket = 1;
    raise(SIGKILL);
  }
  waitpid(pid, nullptr, 0);
  uint64_t facts[2] = {};
  ASSERT_EQ(read(ends[0], facts, sizeof(facts)), static_cast<ssize_t>(sizeof(facts)));
  close(ends[0]);
  close(ends[1]);
  auto worker = Board::attach(name, facts[0], facts[1]);
  ASSERT_TRUE(worker) << "the name outlives its killed owner";
  EXPECT_EQ(worker->header().work.wait(0, kWait, {}, 20'000), 0U) << "nobody rang";
  EXPECT_EQ(remove_stale_segments(run_), 1U);
  EXPECT_FALSE(Board::attach(name, facts[0], facts[1]));
}

}  // namespace
}  // namespace strata::shm
