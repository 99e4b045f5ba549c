#pragma once
// Keeps an expert worker attached: asks the gpu-worker for a board, serves it until the stream ends, and
// begins again. While the gpu-worker is not there (or restarts) it tries every 100 ms,
// after a refusal every two seconds.

#include <grpcpp/grpcpp.h>
#include <chrono>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "cpu-expert-worker/board_server.h"
#include "strata/v1/experts.grpc.pb.h"

namespace strata::cpu_expert_worker {

struct BoardClientOptions {
  std::shared_ptr<grpc::Channel> channel;  // to the gpu-worker
  v1::AttachExpertsRequest request;
  BoardServer* server = nullptr;  // outlives the client
};

class BoardClient {
 public:
  explicit BoardClient(BoardClientOptions options);  // starts the leading thread
  ~BoardClient();                                    // cancels the stream, joins

  bool attached() const { return attached_.load(std::memory_order_relaxed); }
  std::string detail() const;  // why it is not attached; empty when it is

 private:
  void run();
  Status attach_and_serve();
  Status serve_board(const v1::AttachExpertsResponse& response, const std::function<bool()>& stop);
  void set_detail(const std::string& detail);
  // False when it is time to stop.
  bool pause(std::chrono::milliseconds length);

  BoardClientOptions options_;
  std::unique_ptr<v1::ExpertHub::Stub> stub_;
  std::atomic<bool> attached_{false};
  mutable std::mutex mutex_;
  std::condition_variable stop_asked_;
  std::atomic<bool> stopping_{false};    // set under the mutex
  grpc::ClientContext* call_ = nullptr;  // the open call, for cancelling; under the mutex
  std::string detail_;                   // under the mutex
  std::thread leader_;
};

}  // namespace strata::cpu_expert_worker
