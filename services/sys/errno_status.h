#pragma once
// What an errno means in the project's codes.

#include <cerrno>

#include "services/base/status.h"

namespace strata::sys {

inline Code errno_code(int error) {
  switch (error) {
    case ENOENT:
    case ESRCH:
    case ENOTDIR:
      return Code::kNotFound;
    case EACCES:
    case EPERM:
    case EROFS:
      return Code::kPermissionDenied;
    case EEXIST:
      return Code::kAlreadyExists;
    case ENOSPC:
    case ENOMEM:
    case EAGAIN:
    case EMFILE:
    case ENFILE:
      return Code::kResourceExhausted;
    case EINVAL:
    case ENAMETOOLONG:
    case ENOEXEC:
      return Code::kInvalidArgument;
    case ENOSYS:
      return Code::kUnimplemented;
    default:
      return Code::kInternal;
  }
}

}  // namespace strata::sys
