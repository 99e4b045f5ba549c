#pragma once
// EngineLink over the gpu-worker's Residency service.

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <string>

#include "cache-manager/engine_link.h"
#include "strata/v1/residency.grpc.pb.h"

namespace strata::cache_manager {

struct GrpcEngineLinkOptions {
  std::shared_ptr<grpc::Channel> channel;
  std::string model_fingerprint;
  // A reply waits for a window boundary, so this is above the longest window that the gpu-worker's watchdog
  // allows.
  std::chrono::milliseconds call_timeout{0};
};

class GrpcEngineLink final : public EngineLink {
 public:
  explicit GrpcEngineLink(GrpcEngineLinkOptions options);
  ~GrpcEngineLink() override;  // detach()

  void attach(AttachEvents events) override;
  void detach() override;
  void retire(uint64_t epoch, std::vector<SlotExchange> exchanges,
              std::function<void(Result<std::vector<bool>>)> reply) override;
  void land(uint64_t epoch, std::vector<CopiedSlot> slots, std::function<void(Status)> reply) override;
  void abandon(uint64_t epoch, std::vector<uint32_t> slots, std::function<void(Status)> reply) override;

 private:
  class AttachStream;

  GrpcEngineLinkOptions options_;
  std::unique_ptr<v1::Residency::Stub> stub_;
  std::mutex mutex_;
  std::weak_ptr<AttachStream> stream_;
};

}  // namespace strata::cache_manager
