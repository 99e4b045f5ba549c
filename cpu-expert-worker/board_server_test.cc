// What a worker does with the requests on its board, good and damaged. That its results are right is shown
// with the other side (gpu-worker/expert_dispatch_test.cc).

#include "cpu-expert-worker/board_server.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <random>

#include "services/gguf/gguf_file.h"
#include "tests/support/test_data.h"

namespace strata::cpu_expert_worker {
namespace {

constexpr shm::WaitPolicy kWait{.yield = true, .park_after_us = 200};
constexpr uint64_t kDeadlineUs = 60'000'000;

class BoardServerTest : public testing::Test {
 protected:
  void SetUp() override {
    auto file = gguf::GgufFile::open(tests::models_golden_model().string());
    ASSERT_TRUE(file) << file.error().message();
    auto table = model::load_experts(*file);
    ASSERT_TRUE(table) << table.error().message();
    table_.emplace(std::move(*table));
    geometry_ = {.hidden = table_->layers[0].hidden, .tokens_max = 4, .pairs_max = 16};
    auto board = create_board(geometry_);
    ASSERT_TRUE(board) << board.error().message();
    board_.emplace(std::move(*board));
  }
  void TearDown() override { shm::remove_stale_segments(run_); }

  Result<shm::Board> create_board(const shm::BoardGeometry& geometry) {
    return shm::Board::create(shm::segment_name(run_, "board", shm::random_instance_id()), geometry);
  }

  // Two tokens, three pairs of two experts, all zeros as activations.
  static void write_request(shm::Board& board, uint64_t ticket) {
    const shm::BoardPair pairs[] = {
        {.token = 0, .expert = 1}, {.token = 1, .expert = 1}, {.token = 0, .expert = 3}};
    std::ranges::copy(pairs, board.pairs());
    board.header().request = {.ticket = ticket,
                              .layer = 2,
                              .tokens = 2,
                              .pair_count = 3,
                              .activations = shm::ActivationKind::kQ8,
                              .numerics = 0};
  }
  // What ExpertJob says to a request with one fault.
  Status read_damaged(const std::function<void(shm::BoardRequest&, shm::BoardPair*)>& damage) {
    write_request(*board_, 1);
    damage(board_->header().request, board_->pairs());
    ExpertJob job(table_->layers, geometry_, 2);
    return job.read(*board_);
  }

  static void compute_alone(ExpertJob& job, JobScratch& scratch) {
    for (const Stage stage : {Stage::kWhole, Stage::kIntermediate, Stage::kOutput}) {
      const uint32_t units = job.units()[static_cast<std::size_t>(stage)];
      if (units > 0) job.compute(stage, {0, units}, scratch);
    }
  }

  std::string run_ = fmt::format("{:08x}", static_cast<uint32_t>(shm::random_instance_id()));
  std::optional<model::ExpertTable> table_;
  shm::BoardGeometry geometry_;
  std::optional<shm::Board> board_;
};

TEST_F(BoardServerTest, PlansEachExpertOnce) {
  write_request(*board_, 9);
  ExpertJob job(table_->layers, geometry_, 1);
  const Status status = job.read(*board_);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(job.ticket(), 9U);
  EXPECT_EQ(job.expert_count(), 2U);
  EXPECT_EQ(job.units(), (StageUnits{2, 0, 0}));
  const model::LayerExperts& layer = table_->layers[2];
  EXPECT_EQ(job.weight_bytes(),
            2 * (layer.gate_expert_bytes + layer.up_expert_bytes + layer.down_expert_bytes));
}

TEST_F(BoardServerTest, RefusesEveryNumberThatIsOutOfRange) {
  using Request = shm::BoardRequest;
  using Pairs = shm::BoardPair*;
  const std::pair<const char*, std::function<void(Request&, Pairs)>> faults[] = {
      {"layer", [&](Request& r, Pairs) { r.layer = static_cast<uint32_t>(table_->layers.size()); }},
      {"layer far", [](Request& r, Pairs) { r.layer = UINT32_MAX; }},
      {"tokens", [](Request& r, Pairs) { r.tokens = 5; }},
      {"pair_count", [](Request& r, Pairs) { r.pair_count = 17; }},
      {"no pairs", [](Request& r, Pairs) { r.pair_count = 0; }},
      {"numerics", [](Request& r, Pairs) { r.numerics = 2; }},
      {"activations", [](Request& r, Pairs) { r.activations = static_cast<shm::ActivationKind>(2); }},
      {"8-bit where float32 is needed", [](Request& r, Pairs) { r.numerics = 1; }},
      {"token", [](Request&, Pairs pairs) { pairs[1].token = 2; }},
      {"expert",
       [&](Request&, Pairs pairs) { pairs[2].expert = static_cast<uint16_t>(table_->layers[2].count); }},
      {"order", [](Request&, Pairs pairs) { std::swap(pairs[0].expert, pairs[2].expert); }},
  };
  for (const auto& [name, damage] : faults) {
    const Status status = read_damaged(damage);
    EXPECT_EQ(status.code(), Code::kDataLoss) << name << ": " << status.message();
    EXPECT_TRUE(status.message().starts_with("board request 1: ")) << status.message();
  }
  EXPECT_TRUE(read_damaged([](Request&, Pairs) {}).ok()) << "the request itself is good";
}

// Whatever bytes lie on the board: a request is refused, or everything it leads to lies within the board.
TEST_F(BoardServerTest, SurvivesRandomRequests) {
  std::mt19937 random(1);
  const auto below = [&](uint32_t limit) {
    return std::uniform_int_distribution<uint32_t>(0, limit)(random);
  };
  ExpertJob job(table_->layers, geometry_, 2);
  JobScratch scratch;
  job.prepare(scratch);
  uint32_t accepted = 0;
  for (int i = 0; i < 20'000; ++i) {
    // Mostly plausible numbers, or nothing would ever get past the first check.
    const uint32_t expert_range = below(1) != 0 ? 1 : 200;
    for (uint32_t pair = 0; pair < geometry_.pairs_max; ++pair) {
      board_->pairs()[pair] = {.token = static_cast<uint16_t>(below(4)),
                               .expert = static_cast<uint16_t>(below(expert_range))};
    }
    board_->header().request = {.ticket = below(9),
                                .layer = below(12),
                                .tokens = below(6),
                                .pair_count = below(below(3) == 0 ? 20 : 2),
                                .activations = static_cast<shm::ActivationKind>(below(2)),
                                .numerics = below(2)};
    if (!job.read(*board_).ok()) continue;
    ++accepted;
    // Under AddressSanitizer a write beyond the mapping ends the test; the header would show one before the
    // parts.
    if (accepted < 200) compute_alone(job, scratch);
    ASSERT_EQ(board_->header().geometry, geometry_);
  }
  EXPECT_GT(accepted, 100U) << "otherwise this test shows nothing";
}

TEST_F(BoardServerTest, ServesRequestsUntilItIsToldToStop) {
  for (uint32_t threads : {1U, 3U}) {
    auto board = create_board(geometry_);
    ASSERT_TRUE(board);
    BoardServer server({.layers = table_->layers, .threads = threads, .wait = kWait});
    std::atomic<bool> stopping{false};
    Status served(Code::kInternal, "not yet");
    shm::BoardHeader& header = board->header();
    // The first request is there before the server is.
    write_request(*board, 1);
    header.work.ring();
    std::thread leader([&] { served = server.serve(*board, [&] { return stopping.load(); }); });
    constexpr uint64_t kRequests = 100;
    for (uint64_t ticket = 1; ticket <= kRequests; ++ticket) {
      if (ticket > 1) {
        write_request(*board, ticket);
        header.work.ring();
      }
      for (uint32_t seen = 0; header.done_ticket.load(std::memory_order_acquire) < ticket;) {
        const uint32_t now = header.done.wait(seen, kWait, {}, kDeadlineUs);
        ASSERT_NE(now, seen) << "request " << ticket << " was not served";
        seen = now;
      }
    }
    stopping = true;
    leader.join();
    EXPECT_TRUE(served.ok()) << served.message();
    EXPECT_GE(header.all_progress(), kRequests * 2);
    const PoolCounters& counters = server.counters();
    EXPECT_EQ(counters.experts, kRequests * 2);
    EXPECT_GT(counters.weight_bytes, 0U);
    EXPECT_GT(counters.busy_ns, 0U);
    ASSERT_EQ(counters.threads.size(), threads);
    EXPECT_GT(counters.threads[0].busy_ns, 0U);
  }
}

TEST_F(BoardServerTest, EndsWithTheReasonAtARequestThatCannotBe) {
  BoardServer server({.layers = table_->layers, .threads = 2, .wait = kWait});
  write_request(*board_, 1);
  board_->header().request.layer = 1000;
  board_->header().work.ring();
  const Status status = server.serve(*board_, [] { return false; });
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_EQ(board_->header().done_ticket.load(), 0U);
}

TEST_F(BoardServerTest, RefusesTheBoardOfAnotherModel) {
  auto board = create_board({.hidden = geometry_.hidden + 32, .tokens_max = 1, .pairs_max = 8});
  ASSERT_TRUE(board);
  BoardServer server({.layers = table_->layers, .threads = 1, .wait = kWait});
  EXPECT_EQ(server.serve(*board, [] { return false; }).code(), Code::kFailedPrecondition);
}

}  // namespace
}  // namespace strata::cpu_expert_worker
