// The service over a real socket, with the fake device behind the window loop.

#include "gpu-worker/routing_service.h"

#include <gtest/gtest.h>

#include <cstring>
#include <future>
#include <thread>

#include "gpu-worker/fake_device.h"
#include "gpu-worker/service_test_server.h"

namespace strata::gpu_worker {
namespace {

constexpr RoutingShape kShape{.layers = 2, .used = 2};

struct Row {
  uint32_t sequence, position;
  int32_t token;
  bool prompt;
  std::vector<uint16_t> picks;  // (layers, used)
};

class RoutingServiceTest : public testing::Test {
 protected:
  using Reader = std::unique_ptr<grpc::ClientReader<v1::RecordRoutingResponse>>;

  // A recording that has begun.
  struct Recording {
    grpc::ClientContext context;
    Reader reader;
    v1::RecordRoutingResponse first;
  };
  std::unique_ptr<Recording> record() {
    auto recording = std::make_unique<Recording>();
    limit(recording->context);
    recording->reader = stub_->RecordRouting(&recording->context, {});
    recording->reader->Read(&recording->first);
    return recording;
  }
  static std::vector<Row> rows_of(const v1::RecordRoutingResponse& message) {
    std::vector<Row> rows;
    for (int i = 0; i < message.tokens_size(); ++i) {
      Row row{message.sequences(i), message.positions(i), message.tokens(i), message.prompt(i), {}};
      row.picks.resize(kShape.picks());
      std::memcpy(row.picks.data(), message.experts().data() + i * kShape.picks() * sizeof(uint16_t),
                  kShape.picks() * sizeof(uint16_t));
      rows.push_back(std::move(row));
    }
    return rows;
  }
  // What is left of the stream, to its end.
  static std::vector<Row> rest_of(Recording& recording, uint64_t* dropped = nullptr) {
    std::vector<Row> rows;
    v1::RecordRoutingResponse message;
    while (recording.reader->Read(&message)) {
      for (Row& row : rows_of(message)) rows.push_back(std::move(row));
      if (dropped != nullptr) *dropped += message.dropped_rows();
    }
    return rows;
  }
  grpc::StatusCode stop() {
    grpc::ClientContext context;
    limit(context);
    v1::StopRecordingResponse response;
    return stub_->StopRecording(&context, {}, &response).error_code();
  }
  // Runs an answer to its end.
  void answer(std::vector<int32_t> prompt, uint32_t tokens) {
    auto heard = std::make_shared<RecordingListener>();
    ASSERT_TRUE(loop_
                    .submit(std::make_shared<Generation>(GenerationRequest{.request_id = "r",
                                                                           .prompt = std::move(prompt),
                                                                           .generated = {},
                                                                           .sampling = {},
                                                                           .max_tokens = tokens,
                                                                           .end_tokens = {}},
                                                         heard))
                    .ok());
    ASSERT_TRUE(heard->wait_over());
  }

  FakeDevice device_{2};
  WindowLoop loop_{{.device = &device_, .context_tokens = 100000, .prefill_chunk_tokens = 4}};
  RoutingService service_{{.loop = &loop_,
                           .shape = kShape,
                           .experts = 8,
                           .model_fingerprint = "abc",
                           .log_bytes = 64 * kShape.row_bytes()}};
  ServiceTestServer server_{{&service_}};
  std::unique_ptr<v1::Routing::Stub> stub_ = v1::Routing::NewStub(server_.channel());
};

TEST_F(RoutingServiceTest, StreamsEveryRowWithItsExperts) {
  answer({9, 9}, 2);
  const auto recording = record();
  EXPECT_EQ(recording->first.shape().model_fingerprint(), "abc");
  EXPECT_EQ(recording->first.shape().layers(), 2u);
  EXPECT_EQ(recording->first.shape().experts(), 8u);
  EXPECT_EQ(recording->first.shape().used(), 2u);
  const std::vector<int32_t> prompt = {1, 2, 3, 4, 5, 6};
  answer(prompt, 3);
  EXPECT_EQ(stop(), grpc::StatusCode::OK);
  uint64_t dropped = 0;
  const auto rows = rest_of(*recording, &dropped);
  EXPECT_TRUE(recording->reader->Finish().ok());

  std::vector<int32_t> tokens = prompt;
  for (const int32_t token : fake_answer(prompt, 2)) tokens.push_back(token);  // the last is never read
  ASSERT_EQ(rows.size(), tokens.size()) << "nothing of the answer before";
  EXPECT_EQ(dropped, 0u);
  for (uint32_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].sequence, rows[0].sequence);
    EXPECT_EQ(rows[i].position, i);
    EXPECT_EQ(rows[i].token, tokens[i]);
    EXPECT_EQ(rows[i].prompt, i < prompt.size());
    std::vector<uint16_t> picks = FakeDevice::picks_of(tokens[i], 0);
    for (const uint16_t pick : FakeDevice::picks_of(tokens[i], 1)) picks.push_back(pick);
    EXPECT_EQ(rows[i].picks, picks);
  }
}

TEST_F(RoutingServiceTest, SequencesHaveNumbersOfTheirOwn) {
  const auto recording = record();
  answer({1, 2}, 1);
  answer({3, 4}, 1);
  EXPECT_EQ(stop(), grpc::StatusCode::OK);
  const auto rows = rest_of(*recording);
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0].sequence, rows[1].sequence);
  EXPECT_NE(rows[1].sequence, rows[2].sequence) << "the same place on the device, another sequence";
  EXPECT_EQ(rows[2].position, 0u);
}

TEST_F(RoutingServiceTest, OneRecordingAtATime) {
  const auto first = record();
  auto second = record();
  EXPECT_FALSE(second->first.has_shape());
  EXPECT_EQ(second->reader->Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(stop(), grpc::StatusCode::OK);
  EXPECT_TRUE(rest_of(*first).empty());
  EXPECT_TRUE(first->reader->Finish().ok());
  EXPECT_EQ(stop(), grpc::StatusCode::NOT_FOUND);
  second = record();
  EXPECT_TRUE(second->first.has_shape()) << "the place is free again";
}

TEST_F(RoutingServiceTest, AReaderThatGoesAwayEndsItsRecording) {
  record()->context.TryCancel();
  std::unique_ptr<Recording> next;
  for (int i = 0; i < 1000; ++i) {
    next = record();
    if (next->first.has_shape()) break;
    next->reader->Finish();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  ASSERT_TRUE(next->first.has_shape());
  answer({1, 2, 3}, 1);
  EXPECT_EQ(stop(), grpc::StatusCode::OK);
  EXPECT_EQ(rest_of(*next).size(), 3u);
}

// More rows than ring, waiting messages and the connection take together.
TEST_F(RoutingServiceTest, AReaderThatDoesNotReadHoldsNobodyUpAndHearsWhatItLost) {
  constexpr uint32_t kPrompt = 60000;
  const auto recording = record();
  for (int i = 0; i < 4; ++i) answer(std::vector<int32_t>(kPrompt, 5), 1);
  EXPECT_EQ(stop(), grpc::StatusCode::OK);
  uint64_t dropped = 0;
  const auto rows = rest_of(*recording, &dropped);
  EXPECT_TRUE(recording->reader->Finish().ok());
  EXPECT_EQ(rows.size() + dropped, 4u * kPrompt) << "every row is there or counted";
  EXPECT_GT(rows.size(), 0u);
}

TEST_F(RoutingServiceTest, AStoppedLoopRecordsNothing) {
  loop_.stop();
  const auto recording = record();
  EXPECT_EQ(recording->reader->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(stop(), grpc::StatusCode::NOT_FOUND);
}

}  // namespace
}  // namespace strata::gpu_worker
