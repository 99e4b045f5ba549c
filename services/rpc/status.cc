#include <grpcpp/grpcpp.h>

#include "services/rpc/server.h"

namespace strata::rpc {

namespace {

// Messages travel in a header of 8 KiB at most, percent-encoded in the worst case.
constexpr std::size_t kMessageBytesMax = 2048;

}  // namespace

static_assert(static_cast<int>(Code::kUnauthenticated) ==
              static_cast<int>(grpc::StatusCode::UNAUTHENTICATED));
static_assert(static_cast<int>(Code::kUnavailable) == static_cast<int>(grpc::StatusCode::UNAVAILABLE));

grpc::Status to_grpc(const Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return {static_cast<grpc::StatusCode>(status.code()), status.message().substr(0, kMessageBytesMax)};
}

Status from_grpc(const grpc::Status& status) {
  if (status.ok()) return {};
  int code = status.error_code();
  bool known = code > static_cast<int>(Code::kOk) && code <= static_cast<int>(Code::kUnauthenticated);
  return {known ? static_cast<Code>(code) : Code::kUnknown, status.error_message()};
}

}  // namespace strata::rpc
