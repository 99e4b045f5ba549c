#include "gateway/generation/timings.h"

#include <gtest/gtest.h>

namespace strata::gateway {
namespace {

using std::chrono::milliseconds;

const RequestClock::Time kStart{};

RequestClock::Time at(int ms) { return kStart + milliseconds(ms); }

TEST(TimingsTest, EachMomentBelongsToOnePart) {
  RequestClock clock;
  clock.arrived(at(0));
  clock.granted(at(30));
  clock.choice_begins(at(30));
  clock.token(at(130));
  clock.token(at(180));
  clock.choice_ends(at(230));
  clock.choice_ends(at(900));
  EXPECT_EQ(clock.timings().queue, milliseconds(30));
  EXPECT_EQ(clock.timings().prompt, milliseconds(100));
  EXPECT_EQ(clock.timings().predicted, milliseconds(100)) << "time after the end belongs to nobody";
}

TEST(TimingsTest, ChoicesAddUpAndOneWithoutTokensIsAllPrompt) {
  RequestClock clock;
  clock.arrived(at(0));
  clock.granted(at(0));
  clock.choice_begins(at(0));
  clock.token(at(10));
  clock.choice_ends(at(30));
  clock.choice_begins(at(35));
  clock.choice_ends(at(40));
  clock.choice_begins(at(40));
  clock.token(at(41));
  clock.choice_ends(at(45));
  EXPECT_EQ(clock.timings().prompt, milliseconds(10 + 5 + 1));
  EXPECT_EQ(clock.timings().predicted, milliseconds(20 + 4));
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
