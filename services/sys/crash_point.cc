#include "services/sys/crash_point.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <string>

namespace strata::sys {
namespace {

std::string_view listed_places() {
  const char* value = std::getenv("STRATA_TEST_CRASH_AT");
  return value == nullptr ? std::string_view() : std::string_view(value);
}

}  // namespace

void crash_point(std::string_view place) {
  static const std::string_view listed = listed_places();
  for (std::string_view rest = listed; !rest.empty();) {
    const std::string_view entry = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(entry.size() + 1, rest.size()));
    const std::size_t at = entry.find('@');
    if (at == std::string_view::npos || entry.substr(0, at) != place) continue;
    // Whoever removes the file is the one that crashes.
    if (::unlink(std::string(entry.substr(at + 1)).c_str()) == 0) std::raise(SIGKILL);
  }
}

}  // namespace strata::sys
