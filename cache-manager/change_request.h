#pragma once
// A ChangeResidencyRequest (proto/strata/v1/cache.proto) as the exchange actor takes it.

#include "cache-manager/residency_control.h"
#include "services/base/status.h"
#include "strata/v1/cache.pb.h"

namespace strata::cache_manager {

// Settings are read as a configuration would be, with the same bounds and errors. kInvalidArgument names the
// setting.
Result<ControlChange> read_change(const v1::ChangeResidencyRequest& request);

void write_live_settings(const std::string& policy, const ExchangeRates& rates,
                         v1::GetResidencyResponse& response);

}  // namespace strata::cache_manager
