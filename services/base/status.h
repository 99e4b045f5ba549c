#pragma once
// How the project says that something did not work: Status (code, message, place) and Result<T>.
// The codes are numerically gRPC's, so a fault crosses the process edge with one cast (services/rpc/status.h).

#if defined(__CUDACC__) && !defined(FMT_USE_CONSTEXPR)
#define FMT_USE_CONSTEXPR 1  // fmt 9 believes nvcc incapable of constexpr, and then uses consteval all the same
#endif
#include <fmt/format.h>

#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <type_traits>
#include <utility>

namespace strata {

enum class Code : int {
  kOk = 0,
  kCancelled = 1,           // the caller gave up: client gone, shutdown
  kUnknown = 2,             // an error of foreign code that says no more
  kInvalidArgument = 3,     // a request field, setting or option has a value that can never work
  kDeadlineExceeded = 4,    // somebody did not answer in time
  kNotFound = 5,            // a file, tensor, key or process that should exist does not
  kAlreadyExists = 6,       // a run directory, socket or name is in use
  kPermissionDenied = 7,    // the system refused access
  kResourceExhausted = 8,   // a queue, the memory plan or a limit is full; trying later can help
  kFailedPrecondition = 9,  // right request, wrong state: not attached, not ready, other model
  kAborted = 10,            // a race was lost: the slot was taken, the epoch changed
  kOutOfRange = 11,         // beyond the context, the file or the table
  kUnimplemented = 12,      // known and not supported by this build
  kInternal = 13,           // our bug, seen where it could be contained
  kUnavailable = 14,        // the peer is down or restarting; trying again helps
  kDataLoss = 15,           // a damaged file or message
  kUnauthenticated = 16,    // no or wrong key
};

std::string_view code_name(Code code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message, std::source_location where = std::source_location::current())
      : code_(code), message_(std::move(message)), where_(where) {}

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }
  // Where it was raised, "services/gguf/parser.cc:120"; for logs, never for clients.
  std::string where() const;

 private:
  Code code_ = Code::kOk;
  std::string message_;
  std::source_location where_ = std::source_location::current();
};

template <class T>
using Result = tl::expected<T, Status>;

// What fail() returns: becomes a Status or any Result<T>.
struct Failure : tl::unexpected<Status> {
  explicit Failure(Status status) : tl::unexpected<Status>(std::move(status)) {}
  operator Status() && { return std::move(*this).value(); }
};

// A checked format string that remembers the line of the call.
template <class... Args>
struct LocatedFormat {
  template <class S>
    requires std::convertible_to<const S&, std::string_view>
  consteval LocatedFormat(const S& text, std::source_location place = std::source_location::current())
      : format(text), where(place) {}
  fmt::format_string<Args...> format;
  std::source_location where;
};

// return fail(Code::kNotFound, "{}: no tensor {}", path, name);
template <class... Args>
Failure fail(Code code, LocatedFormat<std::type_identity_t<Args>...> text, Args&&... args) {
  return Failure(Status(code, fmt::format(text.format, std::forward<Args>(args)...), text.where));
}

// Passes on a failure that another Result holds.
template <class T>
Failure forward_failure(Result<T>&& result) {
  return Failure(std::move(result).error());
}

}  // namespace strata

// TRY(auto file, File::open(path));   leaves the function with the error, or goes on with the value
#define STRATA_CONCAT_INNER(a, b) a##b
#define STRATA_CONCAT(a, b) STRATA_CONCAT_INNER(a, b)
#define STRATA_TRY_IMPL(result, declaration, ...)                                      \
  auto result = (__VA_ARGS__);                                                         \
  if (!result.has_value()) return ::strata::forward_failure(std::move(result));        \
  declaration = std::move(*result)
#define TRY(declaration, ...) STRATA_TRY_IMPL(STRATA_CONCAT(try_result_, __LINE__), declaration, __VA_ARGS__)

// TRY_OK(check(file));   for functions that return Status or Result<void>
#define TRY_OK(...)                                                                              \
  do {                                                                                           \
    if (auto try_status = ::strata::status_of(__VA_ARGS__); !try_status.ok())                    \
      return ::strata::Failure(std::move(try_status));                                           \
  } while (false)

namespace strata {
inline Status status_of(Status status) { return status; }
inline Status status_of(Result<void> result) { return result ? Status() : std::move(result).error(); }
}  // namespace strata
