#include <gtest/gtest.h>

#include "services/rpc/server.h"

namespace strata::rpc {
namespace {

TEST(RpcStatus, CrossesTheEdgeUnchanged) {
  for (int code = 1; code <= 16; ++code) {
    Status there(static_cast<Code>(code), "what was wrong");
    Status back = from_grpc(to_grpc(there));
    EXPECT_EQ(back.code(), there.code());
    EXPECT_EQ(back.message(), there.message());
  }
  EXPECT_TRUE(from_grpc(to_grpc(Status())).ok());
}

TEST(RpcStatus, TakesForeignCodesAsUnknown) {
  EXPECT_EQ(from_grpc({static_cast<grpc::StatusCode>(99), "x"}).code(), Code::kUnknown);
}

TEST(RpcStatus, CutsMessagesToWhatAHeaderCanCarry) {
  EXPECT_LE(to_grpc(Status(Code::kInternal, std::string(1 << 20, 'x'))).error_message().size(), 4096u);
}

}  // namespace
}  // namespace strata::rpc
