// The scheduler is stepped window by window over a fake device whose answers depend on every token it was
// fed; what is looked at is the composition of the windows and the events.

#include "gpu-worker/window_scheduler.h"

#include <gtest/gtest.h>

#include <numeric>

#include "gpu-worker/answer_constraint.h"
#include "gpu-worker/fake_device.h"
#include "services/grammar/test_support.h"

namespace strata::gpu_worker {
namespace {

std::vector<int32_t> prompt_of(uint32_t count, int32_t first = 1) {
  std::vector<int32_t> prompt(count);
  std::iota(prompt.begin(), prompt.end(), first);
  return prompt;
}

constexpr int32_t kByteEnd = 256;

std::string text_of(const std::vector<int32_t>& tokens) { return {tokens.begin(), tokens.end()}; }

class WindowSchedulerTest : public testing::Test {
 protected:
  struct Submitted {
    std::shared_ptr<Generation> generation;
    std::shared_ptr<RecordingListener> heard;
  };

  GenerationRequest request(std::vector<int32_t> prompt, uint32_t max_tokens) {
    return {.request_id = "r",
            .prompt = std::move(prompt),
            .generated = {},
            .sampling = {},
            .max_tokens = max_tokens,
            .end_tokens = {}};
  }
  // A grammar is of bytes: token b is the byte b, kByteEnd ends the generation.
  Submitted admit(GenerationRequest what) {
    auto heard = std::make_shared<RecordingListener>();
    auto generation = std::make_shared<Generation>(std::move(what), heard);
    if (const ConstraintWish& wish = generation->request().constraint; wish.any()) {
      auto made = AnswerConstraint::create(
          generation->request(), wish.gbnf.empty() ? nullptr : grammar::compiled(wish.gbnf), kFakeVocab);
      EXPECT_TRUE(made.has_value()) << made.error().message();
      generation->constrain(*made);
    }
    scheduler_.admit(generation, events_);
    deliver();
    return {generation, heard};
  }
  void window() {
    scheduler_.drop_cancelled(events_);
    if (!scheduler_.idle()) scheduler_.run_window(events_);
    deliver();
  }
  void run_to_end() {
    for (int windows = 0; !scheduler_.idle(); ++windows) {
      ASSERT_LT(windows, 1000);
      window();
    }
  }
  void deliver() {
    for (PostedEvent& posted : events_) posted.listener->on_event(std::move(posted.event));
    events_.clear();
  }

  FakeDevice device_{3};
  LoopCounters counters_;
  WindowScheduler scheduler_{
      {.device = &device_, .counters = &counters_, .context_tokens = 64, .prefill_chunk_tokens = 8}};
  std::vector<PostedEvent> events_;
};

TEST_F(WindowSchedulerTest, ReadsAPromptInChunksAndReportsEach) {
  auto [generation, heard] = admit(request(prompt_of(20), 2));
  ASSERT_EQ(heard->events().size(), 1u) << "admission is reported at once";
  run_to_end();
  ASSERT_EQ(device_.windows.size(), 4u);
  EXPECT_EQ(device_.windows[0].size(), 8u);
  EXPECT_EQ(device_.windows[1].size(), 8u);
  EXPECT_EQ(device_.windows[2].size(), 4u);
  EXPECT_FALSE(device_.windows[1].back().wants);
  EXPECT_TRUE(device_.windows[2].back().wants);
  EXPECT_EQ(device_.windows[2].back().position, 20u) << "of the token that is chosen";
  std::vector<uint32_t> processed;
  for (const GenerationEvent& event : heard->events()) {
    if (const auto* progress = std::get_if<PromptProgressed>(&event))
      processed.push_back(progress->processed);
  }
  EXPECT_EQ(processed, (std::vector<uint32_t>{0, 8, 16, 20}));
}

// Chunks of 8 tokens.
TEST_F(WindowSchedulerTest, CutsAPromptAtTheMultiplesThatTheDeviceAsksFor) {
  const auto sizes_with = [&](uint32_t multiple, const GenerationRequest& what) {
    device_.multiple = multiple;
    device_.windows.clear();
    admit(what);
    std::vector<std::size_t> sizes;
    while (!scheduler_.idle() && sizes.size() < 100) {
      window();
      sizes.push_back(device_.windows.back().size());
    }
    return sizes;
  };
  using Sizes = std::vector<std::size_t>;
  EXPECT_EQ(sizes_with(1, request(prompt_of(20), 1)), (Sizes{8, 8, 4}));
  EXPECT_EQ(sizes_with(3, request(prompt_of(20), 1)), (Sizes{6, 6, 8}))
      << "the last one ends with the prompt";
  EXPECT_EQ(sizes_with(5, request(prompt_of(21, 200), 1)), (Sizes{5, 5, 5, 6}));
  EXPECT_EQ(sizes_with(8, request(prompt_of(17), 1)), (Sizes{8, 8, 1}));
  EXPECT_EQ(sizes_with(12, request(prompt_of(27, 400), 1)), (Sizes{8, 4, 8, 7})) << "larger than a chunk";
  GenerationRequest resubmitted = request(prompt_of(7), 12);
  resubmitted.generated = fake_answer(prompt_of(7), 11);
  EXPECT_EQ(sizes_with(5, resubmitted), (Sizes{7, 8, 3})) << "an answer is no prompt";
}

TEST_F(WindowSchedulerTest, AnswersWithTheTokensOfTheModelAndEndsAtMaxTokens) {
  auto [generation, heard] = admit(request(prompt_of(3), 5));
  run_to_end();
  EXPECT_EQ(heard->tokens(), fake_answer(prompt_of(3), 5));
  EXPECT_EQ(heard->indexes(), (std::vector<uint32_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(heard->ended().reason, EndReason::kLength);
  EXPECT_EQ(heard->ended().prompt_tokens_computed, 3u);
  EXPECT_EQ(heard->ended().generated_tokens, 5u);
  EXPECT_EQ(counters_.sequences_running, 0u);
  EXPECT_EQ(device_.windows.size(), 5u) << "the last token is not fed any more";
}

TEST_F(WindowSchedulerTest, KeepsAnEndTokenToItself) {
  auto answer = fake_answer(prompt_of(3), 4);
  GenerationRequest what = request(prompt_of(3), 50);
  what.end_tokens = {0, answer[3]};
  auto [generation, heard] = admit(what);
  run_to_end();
  EXPECT_EQ(heard->tokens(), std::vector<int32_t>(answer.begin(), answer.begin() + 3));
  EXPECT_EQ(heard->ended().reason, EndReason::kEndToken);
  EXPECT_EQ(heard->ended().end_token, answer[3]);
}

TEST_F(WindowSchedulerTest, EndsWhenTheContextIsFull) {
  auto [generation, heard] = admit(request(prompt_of(60), 100));
  run_to_end();
  EXPECT_EQ(heard->tokens(), fake_answer(prompt_of(60), 4));
  EXPECT_EQ(heard->ended().reason, EndReason::kContext);
}

TEST_F(WindowSchedulerTest, GivesEverySequenceInAWindowTheAnswerThatItGetsAlone) {
  std::vector<Submitted> all;
  for (int32_t first : {1, 100, 300}) all.push_back(admit(request(prompt_of(11, first), 20)));
  run_to_end();
  EXPECT_EQ(all[0].heard->tokens(), fake_answer(prompt_of(11, 1), 20));
  EXPECT_EQ(all[1].heard->tokens(), fake_answer(prompt_of(11, 100), 20));
  EXPECT_EQ(all[2].heard->tokens(), fake_answer(prompt_of(11, 300), 20));
}

TEST_F(WindowSchedulerTest, DecodesEveryWindowWhileOthersReadTheirPromptsByTurns) {
  auto decoding = admit(request(prompt_of(1), 60));
  window();
  ASSERT_EQ(decoding.heard->tokens().size(), 1u);
  auto first = admit(request(prompt_of(40, 100), 5));
  auto second = admit(request(prompt_of(40, 300), 5));
  std::vector<uint32_t> turns;
  for (int i = 0; i < 6; ++i) {
    window();
    const FakeDevice::Window& rows = device_.windows.back();
    ASSERT_EQ(rows.size(), 9u) << "one pending token and one chunk";
    EXPECT_EQ(rows[0].sequence, 0u);
    EXPECT_FALSE(rows[0].is_prompt);
    turns.push_back(rows[1].sequence);
    EXPECT_TRUE(rows[1].is_prompt);
  }
  EXPECT_EQ(turns, (std::vector<uint32_t>{1, 2, 1, 2, 1, 2}));
  EXPECT_EQ(decoding.heard->tokens().size(), 7u);
}

TEST_F(WindowSchedulerTest, RefusesASequenceTooManyAndTakesItOnceOneHasEnded) {
  for (int i = 0; i < 3; ++i) admit(request(prompt_of(2), 1));
  auto refused = admit(request(prompt_of(2), 1));
  ASSERT_TRUE(refused.heard->over());
  EXPECT_EQ(refused.heard->status().code(), Code::kResourceExhausted);
  run_to_end();
  auto taken = admit(request(prompt_of(2), 1));
  EXPECT_FALSE(taken.heard->over());
}

TEST_F(WindowSchedulerTest, StopsACancelledSequenceBeforeTheNextWindow) {
  auto cancelled = admit(request(prompt_of(30), 10));
  auto other = admit(request(prompt_of(4, 100), 10));
  window();
  cancelled.generation->cancel();
  window();
  ASSERT_TRUE(cancelled.heard->over());
  EXPECT_EQ(cancelled.heard->status().code(), Code::kCancelled);
  EXPECT_EQ(counters_.sequences_running, 1u);
  run_to_end();
  EXPECT_EQ(other.heard->tokens(), fake_answer(prompt_of(4, 100), 10));
}

TEST_F(WindowSchedulerTest, ContinuesAResubmittedAnswerWithoutRepeatingIt) {
  auto whole = fake_answer(prompt_of(13), 30);
  for (std::size_t known : {1u, 2u, 9u, 29u}) {
    device_.windows.clear();
    GenerationRequest what = request(prompt_of(13), 30);
    what.generated.assign(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(known));
    auto [generation, heard] = admit(what);
    run_to_end();
    EXPECT_EQ(heard->tokens(),
              std::vector<int32_t>(whole.begin() + static_cast<std::ptrdiff_t>(known), whole.end()))
        << known;
    EXPECT_EQ(heard->indexes().front(), known);
    EXPECT_EQ(heard->ended().generated_tokens, 30u);
    for (const FakeDevice::Window& rows : device_.windows) {
      for (const FakeDevice::Row& row : rows)
        EXPECT_EQ(row.is_prompt, rows[0].is_prompt) << "a chunk ends with the prompt";
    }
    EXPECT_FALSE(device_.windows[1].back().wants) << "what follows the prompt is known";
  }
}

TEST_F(WindowSchedulerTest, EndsAResubmittedAnswerThatLacksOnlyItsEnd) {
  GenerationRequest what = request(prompt_of(5), 4);
  what.generated = fake_answer(prompt_of(5), 4);
  auto [generation, heard] = admit(what);
  ASSERT_TRUE(heard->over());
  EXPECT_EQ(heard->ended().reason, EndReason::kLength);
  EXPECT_EQ(heard->ended().generated_tokens, 4u);
  what.max_tokens = 100;
  what.prompt = prompt_of(60);
  EXPECT_EQ(admit(what).heard->ended().reason, EndReason::kContext);
  EXPECT_TRUE(device_.windows.empty());
}

// The next turn: prompt, answer and the next message. However the answer ended, it reads only what is new.
TEST_F(WindowSchedulerTest, TheNextTurnReadsOnlyWhatIsNew) {
  enum class Ends { kLength, kEndToken, kCancelled };
  for (const Ends ends : {Ends::kLength, Ends::kEndToken, Ends::kCancelled}) {
    const int32_t base = 13 + 100 * static_cast<int32_t>(ends);
    const auto prompt = prompt_of(13, base);
    const auto said = fake_answer(prompt, 8);
    GenerationRequest first = request(prompt, 8);
    if (ends == Ends::kEndToken) {
      first.max_tokens = 50;
      first.end_tokens = {fake_answer(prompt, 9)[8]};
    }
    if (ends == Ends::kCancelled) first.max_tokens = 50;
    auto [generation, heard] = admit(first);
    if (ends == Ends::kCancelled) {
      while (heard->tokens().size() < 8) window();
      generation->cancel();
    }
    run_to_end();
    ASSERT_EQ(heard->tokens(), said);

    auto next = prompt;
    next.insert(next.end(), said.begin(), said.end());
    next.insert(next.end(), {501, 502, 503});
    device_.windows.clear();
    auto second = admit(request(next, 4));
    run_to_end();
    EXPECT_EQ(second.heard->tokens(), fake_answer(next, 4));
    const GenerationEnded ended = second.heard->ended();
    EXPECT_EQ(ended.source, ReuseSource::kLive);
    // The last token of an answer that was cut off has not been read; an end token was never part of it.
    const uint32_t known = 13 + (ends == Ends::kEndToken ? 8 : 7);
    EXPECT_EQ(ended.prompt_tokens_reused, known);
    EXPECT_EQ(ended.prompt_tokens_computed, next.size() - known);
    EXPECT_EQ(device_.windows[0].size(), next.size() - known);
    EXPECT_EQ(std::get<PromptProgressed>(second.heard->events()[0]).cached, known);
  }
}

// Whether the device captures states within windows.
class CheckpointsOnTheWay : public WindowSchedulerTest, public testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(Devices, CheckpointsOnTheWay, testing::Bool());

TEST_P(CheckpointsOnTheWay, AreTakenWhereTheyAreWanted) {
  const bool within = device_.captures_within = GetParam();
  GenerationRequest first = request(prompt_of(20), 2);
  first.checkpoints = {{5, snapshot::SnapshotKind::kRoot},
                       {7, snapshot::SnapshotKind::kTurn},
                       {16, snapshot::SnapshotKind::kTurn}};
  const auto kept = admit(first);
  run_to_end();
  std::vector<std::size_t> sizes;
  for (const auto& rows : device_.windows) sizes.push_back(rows.size());
  EXPECT_EQ(sizes,
            within ? (std::vector<std::size_t>{8, 8, 4, 1}) : (std::vector<std::size_t>{5, 2, 8, 1, 4, 1}));
  std::vector<uint32_t> said;  // behind how many tokens there is a state
  for (const GenerationEvent& event : kept.heard->events()) {
    if (const auto* progress = std::get_if<PromptProgressed>(&event)) said.push_back(progress->kept);
  }
  EXPECT_EQ(said,
            within ? (std::vector<uint32_t>{0, 7, 16, 16}) : (std::vector<uint32_t>{0, 5, 7, 7, 16, 16}));

  // The last first: going back to one leaves nothing behind it.
  for (const uint32_t known : {16U, 7U, 5U}) {
    auto edited = prompt_of(known);
    edited.insert(edited.end(), {700, 701});
    auto second = admit(request(edited, 3));
    run_to_end();
    EXPECT_EQ(second.heard->tokens(), fake_answer(edited, 3));
    EXPECT_EQ(second.heard->ended().prompt_tokens_reused, known);
    EXPECT_EQ(second.heard->ended().source, ReuseSource::kCheckpoint);
  }
}

// Three slots, and four wishes within one window: the slot of one goes to another before either is filled.
TEST_F(WindowSchedulerTest, OfMoreCheckpointsThanSlotsInAWindowThoseStayThatSaveMost) {
  GenerationRequest first = request(prompt_of(8), 1);
  first.checkpoints = {{2, snapshot::SnapshotKind::kRoot},
                       {3, snapshot::SnapshotKind::kTurn},
                       {5, snapshot::SnapshotKind::kTurn},
                       {7, snapshot::SnapshotKind::kTurn}};
  admit(first);
  run_to_end();
  EXPECT_EQ(device_.windows.size(), 1u);
  for (const auto& [tokens, known] : {std::pair(7U, 7U), {6U, 5U}, {4U, 2U}, {2U, 2U}}) {
    auto edited = prompt_of(tokens);
    edited.push_back(700);
    auto second = admit(request(edited, 1));
    run_to_end();
    EXPECT_EQ(second.heard->tokens(), fake_answer(edited, 1));
    EXPECT_EQ(second.heard->ended().prompt_tokens_reused, known) << tokens;
  }
}

// What was to be captured in it is not there, and its slots are free.
TEST_F(WindowSchedulerTest, OfAWindowThatFailedNothingIsKept) {
  GenerationRequest first = request(prompt_of(8), 1);
  first.checkpoints = {{3, snapshot::SnapshotKind::kTurn}, {5, snapshot::SnapshotKind::kTurn}};
  device_.next_status = Status(Code::kInternal, "broken");
  admit(first);
  run_to_end();
  device_.next_status = {};
  auto second = admit(first);
  run_to_end();
  EXPECT_EQ(second.heard->ended().prompt_tokens_reused, 0u);
  auto third = admit(request(prompt_of(6), 1));
  run_to_end();
  EXPECT_EQ(third.heard->ended().prompt_tokens_reused, 5u);
  EXPECT_EQ(third.heard->tokens(), fake_answer(prompt_of(6), 1));
}

TEST_P(CheckpointsOnTheWay, AreTakenAtTheMultiplesThatTheDeviceAsksFor) {
  const bool within = device_.captures_within = GetParam();
  device_.multiple = 4;
  GenerationRequest first = request(prompt_of(14), 1);
  first.checkpoints = {{3, snapshot::SnapshotKind::kRoot},
                       {6, snapshot::SnapshotKind::kTurn},
                       {7, snapshot::SnapshotKind::kTurn}};
  admit(first);
  run_to_end();
  std::vector<std::size_t> sizes;
  for (const auto& rows : device_.windows) sizes.push_back(rows.size());
  EXPECT_EQ(sizes, within ? (std::vector<std::size_t>{8, 6}) : (std::vector<std::size_t>{4, 8, 2}));
  auto edited = prompt_of(7);
  edited.push_back(900);
  auto second = admit(request(edited, 1));
  run_to_end();
  EXPECT_EQ(second.heard->ended().prompt_tokens_reused, 4u);
}

// A resubmitted answer's known tokens may be reused as well; they count as what they are.
TEST_F(WindowSchedulerTest, ReusesAnAnswerThatIsResubmitted) {
  const auto whole = fake_answer(prompt_of(13), 20);
  GenerationRequest what = request(prompt_of(13), 8);
  admit(what);
  run_to_end();
  what.max_tokens = 20;
  what.generated.assign(whole.begin(), whole.begin() + 8);
  auto again = admit(what);
  run_to_end();
  EXPECT_EQ(again.heard->tokens(), std::vector<int32_t>(whole.begin() + 8, whole.end()));
  EXPECT_EQ(again.heard->ended().prompt_tokens_reused, 13u);
  EXPECT_EQ(again.heard->ended().prompt_tokens_computed, 0u);
  EXPECT_EQ(again.heard->ended().generated_tokens, 20u);
}

TEST_F(WindowSchedulerTest, FailsOnlyTheSequenceWhoseLogitsAreNotUsable) {
  auto good = admit(request(prompt_of(4), 10));
  device_.breaks_at_token = 105;
  auto bad = admit(request(prompt_of(6, 100), 10));
  run_to_end();
  EXPECT_EQ(bad.heard->status().code(), Code::kInternal);
  EXPECT_TRUE(bad.heard->tokens().empty());
  EXPECT_EQ(good.heard->tokens(), fake_answer(prompt_of(4), 10));
}

TEST_F(WindowSchedulerTest, EndsWhatWasInAWindowThatFailed) {
  auto first = admit(request(prompt_of(4), 10));
  window();
  device_.next_status = Status(Code::kInternal, "the device is broken");
  window();
  EXPECT_EQ(first.heard->status().code(), Code::kInternal);
  EXPECT_NE(first.heard->status().message().find("the device is broken"), std::string::npos);
  EXPECT_EQ(counters_.sequences_running, 0u);
}

TEST_F(WindowSchedulerTest, CountsWindowsAndSharesTheirTimeOut) {
  stage(device_.stages, Stage::kAttention) = 1.0;
  admit(request(prompt_of(8), 3));
  run_to_end();
  EXPECT_EQ(counters_.windows, 3u);
  EXPECT_EQ(counters_.decode_windows, 2u);
  EXPECT_EQ(counters_.generated_tokens, 3u);
  EXPECT_EQ(counters_.chunk_tokens, 8u);
  EXPECT_EQ(counters_.chunk_buckets[3], 1u) << "8 tokens";
  EXPECT_EQ(counters_.stage_ns[static_cast<std::size_t>(Stage::kAttention)], 2'000'000'000u)
      << "of decode windows only";
  EXPECT_EQ(counters_.sequences_running, 0u);
}

TEST_F(WindowSchedulerTest, AConstrainedAnswerSaysWhatItsGrammarAllowsAndEndsWithIt) {
  GenerationRequest what = request(prompt_of(20), 50);
  what.constraint.gbnf = R"(root ::= [0-9]{3} "!")";
  auto [generation, heard] = admit(what);
  run_to_end();
  const std::string text = text_of(heard->tokens());
  ASSERT_EQ(text.size(), 4u);
  EXPECT_EQ(text.find_first_not_of("0123456789"), 3u);
  EXPECT_EQ(text[3], '!');
  EXPECT_EQ(heard->ended().reason, EndReason::kEndToken);
  EXPECT_EQ(heard->ended().end_token, kByteEnd) << "although the request names no end token";
}

TEST_F(WindowSchedulerTest, OthersInTheWindowAreNotConstrained) {
  auto before = admit(request(prompt_of(11, 100), 20));
  GenerationRequest what = request(prompt_of(11), 12);
  what.constraint.gbnf = "root ::= [a-z]*";
  auto constrained = admit(what);
  auto after = admit(request(prompt_of(11, 300), 20));
  run_to_end();
  EXPECT_EQ(before.heard->tokens(), fake_answer(prompt_of(11, 100), 20));
  EXPECT_EQ(after.heard->tokens(), fake_answer(prompt_of(11, 300), 20));
  for (const char c : text_of(constrained.heard->tokens())) EXPECT_TRUE(c >= 'a' && c <= 'z') << c;
}

TEST_F(WindowSchedulerTest, AConstrainedAnswerGoesOnAlikeWhenItIsResubmitted) {
  GenerationRequest what = request(prompt_of(13), 40);
  what.constraint = {.gbnf = R"(root ::= "[" [0-9]{2} ("," [0-9]{2}){4,9} "]")",
                     .thinking_end = 500,
                     .thinking_tokens_max = 3};
  auto first = admit(what);
  run_to_end();
  const std::vector<int32_t> whole = first.heard->tokens();
  ASSERT_GT(whole.size(), 18u);
  EXPECT_EQ(whole[3], 500) << "the budget of the thinking is spent";
  EXPECT_EQ(whole[4], '[');
  for (std::size_t known = 1; known < whole.size(); ++known) {
    const auto cut = whole.begin() + static_cast<std::ptrdiff_t>(known);
    what.generated.assign(whole.begin(), cut);
    auto again = admit(what);
    run_to_end();
    EXPECT_EQ(again.heard->tokens(), std::vector<int32_t>(cut, whole.end())) << known;
    EXPECT_EQ(again.heard->ended().reason, first.heard->ended().reason);
  }
}

TEST_F(WindowSchedulerTest, ABudgetOfThinkingAloneLeavesTheRestFree) {
  GenerationRequest what = request(prompt_of(5), 20);
  what.constraint = {.thinking_end = 700, .thinking_tokens_max = 4};
  auto [generation, heard] = admit(what);
  run_to_end();
  std::vector<int32_t> expected = fake_answer(prompt_of(5), 4);
  expected.push_back(700);
  std::vector<int32_t> all = prompt_of(5);
  all.insert(all.end(), expected.begin(), expected.end());
  for (const int32_t token : fake_answer(all, 15)) expected.push_back(token);
  EXPECT_EQ(heard->tokens(), expected);
}

// Another thread is whoever finishes what stands in this list.
class LateConstraintTest : public WindowSchedulerTest {
 protected:
  LateConstraintTest() {
    options_ = {.device = &device_,
                .counters = &counters_,
                .context_tokens = 64,
                .prefill_chunk_tokens = 8,
                .wake = [this] { ++woken_; },
                .finish_constraint =
                    [this](std::shared_ptr<Generation> generation, std::function<void()> then) {
                      unfinished_.emplace_back(std::move(generation), std::move(then));
                    }};
    late_.emplace(options_);
  }
  std::shared_ptr<Generation> submit(GenerationRequest what, const std::string& gbnf,
                                     const std::shared_ptr<RecordingListener>& heard) {
    if (!gbnf.empty()) what.constraint.gbnf = gbnf;
    auto generation = std::make_shared<Generation>(what, heard);
    if (!gbnf.empty())
      generation->constrain(*AnswerConstraint::create(what, grammar::compiled(gbnf), kFakeVocab));
    late_->admit(generation, events_);
    return generation;
  }
  void step() {
    late_->drop_cancelled(events_);
    if (!late_->idle()) late_->run_window(events_);
    deliver();
  }
  void finish() {
    for (auto& [generation, then] : std::exchange(unfinished_, {})) {
      generation->constraint()->finish();
      then();
    }
  }

  WindowSchedulerOptions options_;
  std::optional<WindowScheduler> late_;
  std::vector<std::pair<std::shared_ptr<Generation>, std::function<void()>>> unfinished_;
  int woken_ = 0;
};

TEST_F(LateConstraintTest, AnAnswerStaysOutOfTheWindowsUntilItsMaskIsMadeAndOthersGoOn) {
  const std::string gbnf = R"(root ::= "[" [0-9]{2} ("," [0-9]{2}){4,9} "]")";
  GenerationRequest what = request(prompt_of(5), 30);
  what.constraint.gbnf = gbnf;
  auto expected = admit(what);  // by a scheduler that finishes everything itself
  run_to_end();
  ASSERT_GT(expected.heard->tokens().size(), 10u);

  auto heard = std::make_shared<RecordingListener>(), free = std::make_shared<RecordingListener>();
  auto generation = submit(request(prompt_of(5), 30), gbnf, heard);
  submit(request(prompt_of(4, 100), 40), "", free);
  while (unfinished_.empty() || free->tokens().empty()) step();
  const std::size_t said = heard->tokens().size(), said_free = free->tokens().size();
  for (int i = 0; i < 3; ++i) {
    step();
    EXPECT_EQ(device_.windows.back().size(), 1u);
  }
  EXPECT_EQ(heard->tokens().size(), said);
  EXPECT_EQ(free->tokens().size(), said_free + 3);
  EXPECT_EQ(woken_, 0);
  for (int i = 0; i < 200; ++i) {
    finish();
    step();
  }
  EXPECT_EQ(heard->tokens(), expected.heard->tokens());
  EXPECT_EQ(free->tokens(), fake_answer(prompt_of(4, 100), 40));
  EXPECT_GT(woken_, 0);
  EXPECT_EQ(counters_.late_masks, static_cast<uint64_t>(woken_) * 2) << "of both schedulers";
  EXPECT_EQ(counters_.sequences_running, 0u);
}

TEST_F(LateConstraintTest, ThereIsNoWindowWhileAllWaitAndACancelledOneNeedNotWait) {
  auto heard = std::make_shared<RecordingListener>();
  auto generation = submit(request(prompt_of(5), 30), R"(root ::= "a" [bc]{20})", heard);
  while (unfinished_.empty()) step();
  EXPECT_TRUE(late_->idle());
  EXPECT_FALSE(late_->decoding());
  const std::size_t windows = device_.windows.size();
  step();
  EXPECT_EQ(device_.windows.size(), windows);
  generation->cancel();
  step();
  EXPECT_EQ(heard->status().code(), Code::kCancelled);
  finish();  // hurts nobody
  step();
  EXPECT_EQ(counters_.sequences_running, 0u);
}

TEST_F(LateConstraintTest, AnAnswerThatIsGivenUpEndsAloneAtTheNextBoundary) {
  auto heard = std::make_shared<RecordingListener>(), free = std::make_shared<RecordingListener>();
  submit(request(prompt_of(5), 30), R"(root ::= "a" [bc]{20})", heard);
  submit(request(prompt_of(4, 100), 40), "", free);
  while (unfinished_.empty()) step();
  unfinished_.front().first->constraint()->give_up(Status(Code::kInternal, "too many readings"));
  step();
  EXPECT_EQ(heard->status().message(), "too many readings");
  while (!late_->idle()) step();
  EXPECT_EQ(free->tokens(), fake_answer(prompt_of(4, 100), 40));
}

// "z" is no token of this vocabulary: behind "a" there is nothing to say.
TEST_F(WindowSchedulerTest, AnAnswerThatNoTokenCanGoOnEndsWithAnErrorAndNobodyElseDoes) {
  auto heard = std::make_shared<RecordingListener>();
  GenerationRequest what = request(prompt_of(9), 12);
  what.constraint.gbnf = "that of the grammar";
  auto generation = std::make_shared<Generation>(what, heard);
  auto made = AnswerConstraint::create(
      what, grammar::compiled(R"(root ::= "a" "z")", grammar::vocabulary_of({"a", "b", "</s>"})), kFakeVocab);
  ASSERT_TRUE(made.has_value());
  generation->constrain(*made);
  scheduler_.admit(generation, events_);
  auto other = admit(request(prompt_of(4, 100), 10));
  run_to_end();
  EXPECT_EQ(heard->status().code(), Code::kInternal);
  EXPECT_EQ(heard->tokens(), std::vector<int32_t>{0});
  EXPECT_EQ(other.heard->tokens(), fake_answer(prompt_of(4, 100), 10));
  EXPECT_EQ(counters_.sequences_running, 0u);
}

}  // namespace
}  // namespace strata::gpu_worker
