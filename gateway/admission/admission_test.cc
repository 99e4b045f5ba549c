#include "gateway/admission/admission.h"

#include <gtest/gtest.h>

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
    send(Admission::Submit{.ticket = ticket, .no_wait = no_wait, .reply = [this, ticket](AdmissionNews news) {
                             heard_[ticket].push_back(std::move(news));
                           }});
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

}  // namespace
}  // namespace strata::gateway
