#pragma once
// The Residency service (proto/strata/v1/residency.proto): hands arena, table and usage board to one cache
// manager at a time and takes its exchanges to the window loop. The rules of an exchange are in
// resident_table.h; this is their way over the wire.

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <string>

#include "gpu-worker/device.h"
#include "gpu-worker/window_loop.h"
#include "strata/v1/residency.grpc.pb.h"

namespace strata::gpu_worker {

struct ResidencyServiceOptions {
  WindowLoop* loop = nullptr;  // loop and device outlive the service and all its calls
  Device* device = nullptr;
  std::string model_fingerprint;
};

class ResidencyService final : public v1::Residency::CallbackService {
 public:
  explicit ResidencyService(ResidencyServiceOptions options);

  // Any thread: tells whether a cache manager holds the grant, also after the service is gone.
  std::function<bool()> attached() const;

  // Not before the process that held the grant last is gone (or is the caller itself): it might still write
  // into slots. One that is alive is killed (docs/decisions/061-fencing-the-cache-manager.md).
  grpc::ServerWriteReactor<v1::AttachCacheResponse>* Attach(grpc::CallbackServerContext* context,
                                                            const v1::AttachCacheRequest* request) override;
  grpc::ServerUnaryReactor* Retire(grpc::CallbackServerContext* context, const v1::RetireRequest* request,
                                   v1::RetireResponse* response) override;
  grpc::ServerUnaryReactor* Land(grpc::CallbackServerContext* context, const v1::LandRequest* request,
                                 v1::LandResponse* response) override;
  grpc::ServerUnaryReactor* Abandon(grpc::CallbackServerContext* context, const v1::AbandonRequest* request,
                                    v1::AbandonResponse* response) override;

 private:
  struct Holder;
  class Attachment;

  Status check_caller(const v1::AttachCacheRequest& request) const;
  // `apply` runs on the window loop's thread at a boundary; the call is answered with what it returns.
  grpc::ServerUnaryReactor* change(grpc::CallbackServerContext* context, std::function<Status()> apply);

  ResidencyServiceOptions options_;
  std::shared_ptr<Holder> holder_;
};

}  // namespace strata::gpu_worker
