#include "services/base/build_info.h"

namespace strata {

std::string_view version() { return STRATA_VERSION; }
std::string_view commit() { return STRATA_COMMIT; }

}  // namespace strata
