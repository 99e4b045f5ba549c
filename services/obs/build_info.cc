#include "services/obs/build_info.h"

namespace strata::obs {

std::string_view version() { return STRATA_VERSION; }
std::string_view commit() { return STRATA_COMMIT; }

}  // namespace strata::obs
