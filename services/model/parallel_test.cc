#include "services/model/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

namespace strata::model {
namespace {

TEST(ParallelTest, VisitsEveryIndexOnceForAnyCountGrainAndThreads) {
  for (const uint32_t threads : {1u, 2u, 3u, 5u}) {
    Parallel parallel(threads);
    EXPECT_EQ(parallel.threads(), threads);
    for (const uint32_t count : {0u, 1u, 2u, 7u, 64u, 1000u}) {
      for (const uint32_t grain : {0u, 1u, 3u, 8u, 5000u}) {
        std::vector<int> visits(count);
        parallel.run(count, grain, [&](uint32_t begin, uint32_t end) {
          for (uint32_t i = begin; i < end; ++i) ++visits[i];
        });
        EXPECT_EQ(visits, std::vector<int>(count, 1))
            << threads << " threads, count " << count << ", grain " << grain;
      }
    }
  }
}

TEST(ParallelTest, PiecesAreMultiplesOfTheGrainButForTheLast) {
  Parallel parallel(3);
  std::atomic<uint32_t> odd{0};
  parallel.run(1003, 8, [&](uint32_t begin, uint32_t end) {
    if (begin % 8 != 0 || (end % 8 != 0 && end != 1003)) ++odd;
  });
  EXPECT_EQ(odd.load(), 0u);
}

// The sum of each job depends on what the job before wrote: a piece that ran late, twice or with the fields
// of another job shows.
TEST(ParallelTest, ManySmallJobsInARowStaySeparate) {
  Parallel parallel(4);
  std::vector<uint64_t> values(257, 1);
  constexpr uint32_t kJobs = 20000;
  for (uint32_t job = 0; job < kJobs; ++job) {
    const uint32_t count = 1 + job % 257;
    parallel.run(count, 1 + job % 3, [&](uint32_t begin, uint32_t end) {
      for (uint32_t i = begin; i < end; ++i) values[i] += job;
    });
  }
  std::vector<uint64_t> expected(257, 1);
  for (uint32_t job = 0; job < kJobs; ++job) {
    for (uint32_t i = 0; i < 1 + job % 257; ++i) expected[i] += job;
  }
  EXPECT_EQ(values, expected);
}

TEST(ParallelTest, WorksAgainAfterItsWorkersWentToSleep) {
  Parallel parallel(3);
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::atomic<uint32_t> sum{0};
    parallel.run(100, 1, [&](uint32_t begin, uint32_t end) { sum += end - begin; });
    EXPECT_EQ(sum.load(), 100u);
  }
}

TEST(ParallelTest, OtherThreadsTakePartInLongJobs) {
  Parallel parallel(2);
  std::atomic<bool> other{false};
  const auto caller = std::this_thread::get_id();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!other && std::chrono::steady_clock::now() < deadline) {
    parallel.run(8, 1, [&](uint32_t, uint32_t) {
      if (std::this_thread::get_id() != caller) other = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
  }
  EXPECT_TRUE(other);
}

}  // namespace
}  // namespace strata::model
