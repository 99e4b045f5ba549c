#include "services/cli/status_source.h"

#include <mutex>

#include "services/rpc/open_calls.h"
#include "services/rpc/server.h"
#include "strata/v1/process.grpc.pb.h"

namespace strata::cli {

namespace {

constexpr auto kDeadline = std::chrono::milliseconds(1000);

struct Question {
  v1::GetStatusRequest request;
  v1::GetStatusResponse response;
  std::function<void(Result<v1::GetStatusResponse>)> answer;
};

}  // namespace

struct GrpcStatusSource::Impl {
  std::string run_dir;
  std::mutex mutex;
  std::map<std::string, std::unique_ptr<v1::Process::Stub>> stubs;
  rpc::OpenCalls calls;  // last: goes first, and waits for the calls that use the stubs
};

GrpcStatusSource::GrpcStatusSource(std::string run_dir) : impl_(std::make_unique<Impl>()) {
  impl_->run_dir = std::move(run_dir);
}

GrpcStatusSource::~GrpcStatusSource() = default;

void GrpcStatusSource::ask(const std::string& process,
                           std::function<void(Result<v1::GetStatusResponse>)> answer) {
  auto question = std::make_shared<Question>();
  question->answer = std::move(answer);
  auto context = impl_->calls.open(kDeadline);
  v1::Process::Stub* stub = nullptr;
  {
    std::scoped_lock lock(impl_->mutex);
    auto& entry = impl_->stubs[process];
    if (!entry) entry = v1::Process::NewStub(rpc::connect(impl_->run_dir, process));
    stub = entry.get();
  }
  grpc::ClientContext* call = context.get();
  stub->async()->GetStatus(call, &question->request, &question->response,
                           [question, held = std::move(context)](const grpc::Status& status) {
                             if (status.ok()) {
                               question->answer(std::move(question->response));
                             } else {
                               question->answer(tl::unexpected(rpc::from_grpc(status)));
                             }
                           });
}

}  // namespace strata::cli
