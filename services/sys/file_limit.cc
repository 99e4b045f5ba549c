#include "services/sys/file_limit.h"

#include <sys/resource.h>

namespace strata::sys {

uint64_t raise_file_limit() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return 0;
  const rlimit raised{.rlim_cur = files.rlim_max, .rlim_max = files.rlim_max};
  return setrlimit(RLIMIT_NOFILE, &raised) == 0 ? raised.rlim_cur : files.rlim_cur;
}

}  // namespace strata::sys
