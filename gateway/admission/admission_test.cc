#include "gateway/admission/admission.h"

#include <gmock/gmock.h>

#include "services/actor/actor_system.h"

namespace strata::gateway {
namespace {

class AdmissionTest : public ::testing::Test {
 protected:
  void start(AdmissionOptions options) {
    admission_ = std::make_shared<Admission>(
        world_.make_executor(), options, [this](const AdmissionView& view) { view_ = view; },
        [this] { ++losses_; });
  }
  void engine_ready(uint32_t sequences) {
    EngineState state{.phase = EngineState::Phase::kReady};
    state.info.sequences_max = sequences;
    send(std::move(state));
  }
  void submit(TicketId ticket, bool no_wait = false) {
    send(Admission::Submit{.ticket = ticket, .no_wait = no_wait, .reply = reply_to(ticket)});
  }
  void submit_of(const char* key, TicketId ticket) {
    send(Admission::Submit{.ticket = ticket, .key = key_namespace(key), .reply = reply_to(ticket)});
  }
  void submit_with(int32_t priority, TicketId ticket) {
    send(Admission::Submit{.ticket = ticket, .priority = priority, .reply = reply_to(ticket)});
  }
  Admission::Reply reply_to(TicketId ticket) {
    return [this, ticket](AdmissionNews news) {
      if (std::holds_alternative<Granted>(news)) granted_.push_back(ticket);
      heard_[ticket].push_back(std::move(news));
    };
  }
  uint32_t position(TicketId ticket) {
    send(Admission::AskPosition{.ticket = ticket});
    const Queued* queued = last<Queued>(ticket);
    return queued == nullptr ? 0 : queued->position;
  }
  // The running one leaves, until nobody runs; the order in which all were granted.
  std::vector<TicketId> run_all() {
    for (std::size_t i = 0; i < granted_.size(); ++i) send(Admission::Leave{.ticket = granted_[i]});
    return granted_;
  }
  template <class Message>
  void send(Message message) {
    tell(admission_, std::move(message));
    world_.deliver_all();
  }
  template <class News>
  const News* last(TicketId ticket) {
    auto& news = heard_[ticket];
    return news.empty() ? nullptr : std::get_if<News>(&news.back());
  }

  actor::VirtualWorld world_;
  std::shared_ptr<Admission> admission_;
  std::map<TicketId, std::vector<AdmissionNews>> heard_;
  std::vector<TicketId> granted_;
  AdmissionView view_;
  int losses_ = 0;
};

TEST_F(AdmissionTest, GrantsAsManyAsTheEngineHasSequencesAndQueuesTheRestInOrder) {
  start({.sequences = 1, .queue_limit = 4});
  engine_ready(2);
  for (TicketId ticket : {1, 2, 3, 4}) submit(ticket);
  EXPECT_TRUE(last<Granted>(1));
  EXPECT_TRUE(last<Granted>(2));
  ASSERT_TRUE(last<Queued>(4));
  EXPECT_EQ(last<Queued>(4)->position, 2u);
  EXPECT_EQ(view_.running, 2u);
  EXPECT_EQ(view_.waiting, 2u);

  send(Admission::Leave{.ticket = 2});
  EXPECT_TRUE(last<Granted>(3));
  send(Admission::AskPosition{.ticket = 4});
  EXPECT_EQ(last<Queued>(4)->position, 1u);
}

TEST_F(AdmissionTest, KeysThatWaitTakeTurnsAndWithinAKeyItGoesByArrival) {
  start({.sequences = 1, .queue_limit = 16});
  engine_ready(1);
  for (TicketId ticket : {1, 2, 3, 4}) submit_of("many", ticket);
  for (TicketId ticket : {21, 22}) submit_of("few", ticket);
  submit_of("one", 31);
  // "many" had its turn with 1.
  EXPECT_EQ(position(21), 1u);
  EXPECT_EQ(position(31), 2u);
  EXPECT_EQ(position(2), 3u);
  EXPECT_EQ(position(22), 4u);
  EXPECT_EQ(position(3), 5u);
  EXPECT_EQ(position(4), 6u);
  EXPECT_THAT(run_all(), ::testing::ElementsAre(1, 21, 31, 2, 22, 3, 4));
}

TEST_F(AdmissionTest, WhoeverIsToldAPlaceIsServedInThatPlace) {
  start({.sequences = 1, .queue_limit = 64});
  engine_ready(1);
  std::map<uint32_t, TicketId> places;
  const char* keys[] = {"a", "b", "a", "a", "c", "b", "a", "d", "c", "c", "c", "a"};
  for (TicketId ticket = 0; ticket < std::size(keys); ++ticket) submit_of(keys[ticket], ticket);
  for (TicketId ticket = 1; ticket < std::size(keys); ++ticket) places[position(ticket)] = ticket;
  ASSERT_EQ(places.size(), std::size(keys) - 1) << "two have the same place";
  std::vector<TicketId> told{0};
  for (const auto& [place, ticket] : places) told.push_back(ticket);
  EXPECT_EQ(run_all(), told);
}

// Rule K1.
TEST_F(AdmissionTest, AChatGoesAheadOfWorkInTheBackgroundThatWaitsAlready) {
  start({.sequences = 1, .queue_limit = 16});
  engine_ready(1);
  submit(1);
  for (TicketId ticket : {11, 12}) submit_with(10, ticket);
  submit(2);
  submit_with(-10, 3);
  EXPECT_EQ(position(3), 1u);
  EXPECT_EQ(position(2), 2u);
  EXPECT_EQ(position(11), 3u);
  EXPECT_EQ(position(12), 4u);
  EXPECT_THAT(run_all(), ::testing::ElementsAre(1, 3, 2, 11, 12));
}

TEST_F(AdmissionTest, WhatWasPassedOftenEnoughHasItsTurnAndKnowsIt) {
  start({.sequences = 1, .queue_limit = 64});
  engine_ready(1);
  submit(1);
  submit_with(10, 100);
  for (TicketId ticket = 2; ticket <= 20; ++ticket) submit(ticket);
  EXPECT_EQ(position(100), kPassesMax + 1);
  send(Admission::Leave{.ticket = 1});
  EXPECT_EQ(position(100), kPassesMax);
  const std::vector<TicketId> order = run_all();
  EXPECT_EQ(order[kPassesMax + 1], 100u);
}

TEST_F(AdmissionTest, AKeyThatComesBackDoesNotGetAheadOfThoseThatWaitedMeanwhile) {
  start({.sequences = 1, .queue_limit = 16});
  engine_ready(1);
  submit_of("a", 1);
  submit_of("b", 11);
  send(Admission::Leave{.ticket = 1});
  ASSERT_TRUE(last<Granted>(11));
  submit_of("b", 12);
  submit_of("a", 2);
  send(Admission::Leave{.ticket = 11});
  EXPECT_TRUE(last<Granted>(2)) << "b had its turn after a";
}

TEST_F(AdmissionTest, AKeyHasNoMoreThanItsLimitRunningAndWaiting) {
  start({.sequences = 1, .queue_limit = 16, .requests_per_key = 2});
  engine_ready(1);
  submit_of("a", 1);
  submit_of("a", 2);
  submit_of("a", 3);
  ASSERT_TRUE(last<Refused>(3));
  EXPECT_EQ(last<Refused>(3)->error.status, 429u);
  EXPECT_EQ(last<Refused>(3)->error.code, "key_limit");
  EXPECT_GE(last<Refused>(3)->error.retry_after_s.value_or(0), 1u);
  submit_of("b", 11);
  EXPECT_TRUE(last<Queued>(11)) << "another key's limit";
  send(Admission::Leave{.ticket = 1});
  submit_of("a", 4);
  EXPECT_TRUE(last<Queued>(4)) << "one has left";
}

TEST_F(AdmissionTest, RefusesOneMoreThanTheQueueHoldsAndSaysWhenToComeBack) {
  start({.sequences = 1, .queue_limit = 1});
  engine_ready(1);
  submit(1);
  EXPECT_FALSE(view_.full);
  submit(2);
  EXPECT_TRUE(view_.full);
  submit(3);
  ASSERT_TRUE(last<Refused>(3));
  EXPECT_EQ(last<Refused>(3)->error.status, 429u);
  EXPECT_GE(last<Refused>(3)->error.retry_after_s.value_or(0), 1u);
}

TEST_F(AdmissionTest, ALeavingQueuedRequestTouchesNobodyElse) {
  start({.sequences = 1, .queue_limit = 4});
  engine_ready(1);
  for (TicketId ticket : {1, 2, 3}) submit(ticket);
  send(Admission::Leave{.ticket = 2});
  EXPECT_EQ(heard_[1].size(), 1u);
  EXPECT_TRUE(last<Queued>(3));
  EXPECT_EQ(view_.running, 1u);
  send(Admission::Leave{.ticket = 1});
  EXPECT_TRUE(last<Granted>(3));
  EXPECT_TRUE(last<Queued>(2)) << "granted after it left";
}

TEST_F(AdmissionTest, KeepsRequestsWaitingWhileTheModelLoads) {
  start({.sequences = 2, .queue_limit = 1});
  for (TicketId ticket : {1, 2, 3}) submit(ticket);
  EXPECT_TRUE(last<Queued>(3));
  submit(4);
  EXPECT_TRUE(last<Refused>(4));
  engine_ready(2);
  EXPECT_TRUE(last<Granted>(1));
  EXPECT_TRUE(last<Granted>(2));
  EXPECT_TRUE(last<Queued>(3));
}

TEST_F(AdmissionTest, TellsWhoDoesNotWantToWaitWhyThereIsNoEngine) {
  start({.sequences = 1, .queue_limit = 1});
  submit(1, /*no_wait=*/true);
  ASSERT_TRUE(last<Refused>(1));
  EXPECT_EQ(last<Refused>(1)->error.code, "model_loading");
  engine_ready(1);
  send(EngineState{});
  submit(2, /*no_wait=*/true);
  ASSERT_TRUE(last<Refused>(2));
  EXPECT_EQ(last<Refused>(2)->error.code, "engine_unavailable");
}

TEST_F(AdmissionTest, ARequestKeepsItsSequenceOverARestartOfTheEngine) {
  start({.sequences = 1, .queue_limit = 4});
  engine_ready(1);
  submit(1);
  submit(2);
  send(Admission::EngineLost{.ticket = 1});
  EXPECT_EQ(losses_, 1);
  engine_ready(1);
  EXPECT_TRUE(last<EngineBack>(1));
  EXPECT_TRUE(last<Queued>(2)) << "it took the place of a running request";
  EXPECT_EQ(view_.running, 1u);
}

TEST_F(AdmissionTest, DrainingRefusesTheQueueAndTheNewOnesAndLetsTheRunningGoOn) {
  start({.sequences = 1, .queue_limit = 4});
  engine_ready(1);
  submit(1);
  submit(2);
  send(Admission::Drain{});
  EXPECT_EQ(last<Refused>(2)->error.status, 503u);
  submit(3);
  EXPECT_EQ(last<Refused>(3)->error.code, "shutting_down");
  EXPECT_EQ(heard_[1].size(), 1u);
}

TEST_F(AdmissionTest, AFurtherAnswerWaitsItsTurnButIsNoRequest) {
  start({.sequences = 1, .queue_limit = 1, .requests_per_key = 2});
  engine_ready(2);
  const auto further = [this](TicketId ticket, const char* key) {
    send(Admission::Submit{
        .ticket = ticket, .key = key_namespace(key), .further = true, .reply = reply_to(ticket)});
  };
  submit_of("a", 1);
  further(2, "a");
  EXPECT_EQ(granted_, (std::vector<TicketId>{1, 2})) << "there was room";
  EXPECT_EQ(view_.running, 2u);
  further(3, "a");
  EXPECT_EQ(view_.waiting, 0u);
  EXPECT_FALSE(view_.full);
  submit_of("a", 4);
  EXPECT_EQ(position(4), 2u) << "behind the further answer";
  submit_of("a", 5);
  EXPECT_NE(last<Refused>(5), nullptr) << "two requests of the key are there";
  submit_of("b", 6);
  EXPECT_NE(last<Refused>(6), nullptr) << "the queue is full";
  EXPECT_EQ(view_.waiting, 1u);
  send(Admission::Leave{.ticket = 3});  // nobody wants it any more
  send(Admission::Leave{.ticket = 1});
  EXPECT_EQ(granted_, (std::vector<TicketId>{1, 2, 4}));
  send(Admission::Drain{});
  further(7, "a");
  EXPECT_NE(last<Refused>(7), nullptr);
}

TEST_F(AdmissionTest, FurtherAnswersDoNotGoAheadOfOtherKeys) {
  start({.sequences = 1, .queue_limit = 5});
  engine_ready(1);
  submit_of("a", 1);
  send(Admission::Submit{.ticket = 2, .key = key_namespace("a"), .further = true, .reply = reply_to(2)});
  submit_of("b", 3);
  EXPECT_EQ(run_all(), (std::vector<TicketId>{1, 3, 2})) << "its key has had one";
}

}  // namespace
}  // namespace strata::gateway
