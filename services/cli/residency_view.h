#pragma once
// What `strata residency` reads and shows.

#include <string>
#include <string_view>
#include <vector>

#include "services/base/status.h"
#include "strata/v1/cache.pb.h"

namespace strata::cli {

// "3:17" -> layer 3, expert 17. kInvalidArgument says what was expected.
Result<v1::ExpertId> parse_expert(std::string_view text);
// "12,16,16" -> slots of the layers; "auto" -> none. kInvalidArgument likewise.
Result<v1::Quotas> parse_quotas(std::string_view text);

// `now` with the counters as differences to an earlier look; those of a process that was restarted in between
// count from its start.
v1::GetResidencyResponse since(const v1::GetResidencyResponse& before, v1::GetResidencyResponse now);

std::string residency_text(const v1::GetResidencyResponse& residency);
std::string residency_json(const v1::GetResidencyResponse& residency);

}  // namespace strata::cli
