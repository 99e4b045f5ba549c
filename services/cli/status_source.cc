#include "services/cli/status_source.h"

#include <condition_variable>
#include <mutex>
#include <set>

#include "services/rpc/server.h"
#include "strata/v1/process.grpc.pb.h"

namespace strata::cli {

namespace {

constexpr auto kDeadline = std::chrono::milliseconds(1000);

struct Call {
  grpc::ClientContext context;
  v1::GetStatusRequest request;
  v1::GetStatusResponse response;
  std::function<void(Result<v1::GetStatusResponse>)> answer;
};

}  // namespace

struct GrpcStatusSource::Impl {
  std::string run_dir;
  std::mutex mutex;
  std::condition_variable all_answered;
  std::map<std::string, std::unique_ptr<v1::Process::Stub>> stubs;
  std::set<std::shared_ptr<Call>> open;

  void finish(const std::shared_ptr<Call>& call, const grpc::Status& status) {
    if (status.ok()) {
      call->answer(std::move(call->response));
    } else {
      call->answer(tl::unexpected(rpc::from_grpc(status)));
    }
    std::scoped_lock lock(mutex);
    open.erase(call);
    if (open.empty()) all_answered.notify_all();
  }
};

GrpcStatusSource::GrpcStatusSource(std::string run_dir) : impl_(std::make_unique<Impl>()) {
  impl_->run_dir = std::move(run_dir);
}

GrpcStatusSource::~GrpcStatusSource() {
  std::unique_lock lock(impl_->mutex);
  for (const auto& call : impl_->open) call->context.TryCancel();
  impl_->all_answered.wait(lock, [this] { return impl_->open.empty(); });
}

void GrpcStatusSource::ask(const std::string& process,
                           std::function<void(Result<v1::GetStatusResponse>)> answer) {
  auto call = std::make_shared<Call>();
  call->answer = std::move(answer);
  rpc::set_deadline(call->context, kDeadline);
  v1::Process::Stub* stub = nullptr;
  {
    std::scoped_lock lock(impl_->mutex);
    auto& entry = impl_->stubs[process];
    if (!entry) entry = v1::Process::NewStub(rpc::connect(impl_->run_dir, process));
    stub = entry.get();
    impl_->open.insert(call);
  }
  stub->async()->GetStatus(
      &call->context, &call->request, &call->response,
      [impl = impl_.get(), call](const grpc::Status& status) { impl->finish(call, status); });
}

}  // namespace strata::cli
