#pragma once
// Writing a file so that whoever reads, and whatever breaks, finds the old content or the new one.

#include <string>
#include <string_view>

#include "services/base/status.h"

namespace strata::residency {

// A new file beside the old one (PATH.XXXXXX, mode 0600) takes its name when it is complete and on the disk.
// kNotFound, kPermissionDenied, kResourceExhausted (disk full, quota), kUnknown: with the system's text; the
// old file stays and the new one is removed.
Status replace_file(const std::string& path, std::string_view bytes);

}  // namespace strata::residency
