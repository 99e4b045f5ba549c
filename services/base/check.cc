#include "services/base/check.h"

#include <cstdio>
#include <cstdlib>

#include "services/base/status.h"

namespace strata {

namespace {

// The path below the repository root, whatever the build folder was.
std::string_view short_path(const char* file) {
  std::string_view path(file);
  for (std::string_view folder : {"services/", "gateway/", "gpu-worker/", "cpu-expert-worker/", "cache-manager/", "tests/"}) {
    if (auto at = path.rfind(folder); at != std::string_view::npos) return path.substr(at);
  }
  return path;
}

}  // namespace

void check_failed(const char* condition, const std::string& detail, std::source_location where) {
  std::fprintf(stderr, "bug: %s:%u: CHECK(%s) failed%s%s\n", std::string(short_path(where.file_name())).c_str(), where.line(),
               condition, detail.empty() ? "" : ": ", detail.c_str());
  std::abort();
}

std::string Status::where() const { return fmt::format("{}:{}", short_path(where_.file_name()), where_.line()); }

std::string_view code_name(Code code) {
  switch (code) {
    case Code::kOk: return "ok";
    case Code::kCancelled: return "cancelled";
    case Code::kUnknown: return "unknown";
    case Code::kInvalidArgument: return "invalid argument";
    case Code::kDeadlineExceeded: return "deadline exceeded";
    case Code::kNotFound: return "not found";
    case Code::kAlreadyExists: return "already exists";
    case Code::kPermissionDenied: return "permission denied";
    case Code::kResourceExhausted: return "resource exhausted";
    case Code::kFailedPrecondition: return "failed precondition";
    case Code::kAborted: return "aborted";
    case Code::kOutOfRange: return "out of range";
    case Code::kUnimplemented: return "unimplemented";
    case Code::kInternal: return "internal";
    case Code::kUnavailable: return "unavailable";
    case Code::kDataLoss: return "data loss";
    case Code::kUnauthenticated: return "unauthenticated";
  }
  return "unknown";
}

}  // namespace strata
