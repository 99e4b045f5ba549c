#include "gateway/generation/timings.h"

#include <gtest/gtest.h>

namespace strata::gateway {
namespace {

using std::chrono::milliseconds;

const AnswerClock::Time kStart{};

AnswerClock::Time at(int ms) { return kStart + milliseconds(ms); }

TEST(TimingsTest, EachMomentBelongsToOnePart) {
  AnswerClock clock(at(30));
  clock.token(at(130));
  clock.token(at(180));
  EXPECT_EQ(clock.timings(at(200)).predicted, milliseconds(70)) << "it has not ended yet";
  clock.ends(at(230));
  EXPECT_EQ(clock.timings(at(900)).queue, milliseconds(0));
  EXPECT_EQ(clock.timings(at(900)).prompt, milliseconds(100));
  EXPECT_EQ(clock.timings(at(900)).predicted, milliseconds(100)) << "time after the end belongs to nobody";
}

TEST(TimingsTest, AnAnswerWithoutTokensIsAllPrompt) {
  AnswerClock clock(at(35));
  EXPECT_EQ(clock.timings(at(38)).prompt, milliseconds(3));
  clock.ends(at(40));
  EXPECT_EQ(clock.timings(at(50)).prompt, milliseconds(5));
  EXPECT_EQ(clock.timings(at(50)).predicted, milliseconds(0));
}

TEST(TimingsTest, TheMembersAreLlamaCppsAndARateOfNothingIsZero) {
  const auto json =
      timings_json({.queue = milliseconds(7), .prompt = milliseconds(500), .predicted = milliseconds(2000)},
                   {.cached = 90, .prompt = 10, .predicted = 40});
  EXPECT_EQ(json.at("cache_n"), 90);
  EXPECT_EQ(json.at("prompt_n"), 10);
  EXPECT_EQ(json.at("prompt_ms"), 500.0);
  EXPECT_EQ(json.at("prompt_per_token_ms"), 50.0);
  EXPECT_EQ(json.at("prompt_per_second"), 20.0);
  EXPECT_EQ(json.at("predicted_n"), 40);
  EXPECT_EQ(json.at("predicted_ms"), 2000.0);
  EXPECT_EQ(json.at("predicted_per_token_ms"), 50.0);
  EXPECT_EQ(json.at("predicted_per_second"), 20.0);
  EXPECT_EQ(json.at("queue_ms"), 7.0);
  EXPECT_EQ(json.size(), 10u);

  const auto nothing = timings_json({}, {});
  for (const char* rate :
       {"prompt_per_token_ms", "prompt_per_second", "predicted_per_token_ms", "predicted_per_second"}) {
    EXPECT_EQ(nothing.at(rate), 0.0) << rate;
  }
}

}  // namespace
}  // namespace strata::gateway
