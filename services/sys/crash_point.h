#pragma once
// Places where a test may kill the process, so that a crash at exactly this step is tried and not hoped for
// (docs/testing.md). STRATA_TEST_CRASH_AT lists them: "copying@/tmp/a,land-applied@/tmp/b". The process that
// comes by a listed place while its file exists removes the file and ends by SIGKILL: one crash per file,
// also when the process is started again.

#include <string_view>

namespace strata::sys {

// Any thread. Costs one comparison when the variable is not set.
void crash_point(std::string_view place);

}  // namespace strata::sys
