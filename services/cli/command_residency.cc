// strata residency: which experts are resident, and what an operator demands of that.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <thread>

#include "services/cli/cluster_client.h"
#include "services/cli/commands.h"
#include "services/cli/residency_view.h"

namespace strata::cli {

namespace {

Result<v1::GetResidencyResponse> look(const ResidencyShowOptions& options) {
  TRY(auto residency, get_residency(options.run_dir));
  if (options.seconds <= 0) return residency;
  std::this_thread::sleep_for(std::chrono::duration<double>(options.seconds));
  TRY(auto later, get_residency(options.run_dir));
  return since(residency, std::move(later));
}

Result<v1::ChangeResidencyRequest> request_of(const ResidencyChangeOptions& options) {
  v1::ChangeResidencyRequest request;
  for (const std::string& text : options.pin) {
    TRY(*request.add_pin(), parse_expert(text));
  }
  for (const std::string& text : options.unpin) {
    TRY(*request.add_unpin(), parse_expert(text));
  }
  request.set_unpin_all(options.unpin_all);
  if (!options.quotas.empty()) {
    TRY(*request.mutable_quotas(), parse_quotas(options.quotas));
  }
  const auto set = [&](const char* name, const std::string& value) {
    if (value.empty()) return;
    v1::LiveSetting& setting = *request.add_settings();
    setting.set_name(name);
    setting.set_value(value);
  };
  set("experts.policy", options.policy);
  set("experts.exchanges_per_window", options.exchanges_per_window);
  set("experts.copy_budget", options.copy_budget);
  set("experts.exchanges_in_flight", options.exchanges_in_flight);
  return request;
}

int print(const v1::GetResidencyResponse& residency, bool json) {
  std::fputs((json ? residency_json(residency) : residency_text(residency)).c_str(), stdout);
  return 0;
}

}  // namespace

int run_residency_show(const ResidencyShowOptions& options) {
  const auto residency = look(options);
  if (!residency) return report_answer(options.run_dir, residency.error());
  return print(*residency, options.json);
}

int run_residency_change(const ResidencyChangeOptions& options) {
  if (options.pin.empty() && options.unpin.empty() && !options.unpin_all && options.quotas.empty() &&
      options.policy.empty() && options.exchanges_per_window.empty() && options.copy_budget.empty() &&
      options.exchanges_in_flight.empty()) {
    return report(fail(Code::kInvalidArgument, "nothing to change: name experts, or --all"), kExitFault);
  }
  const auto request = request_of(options);
  if (!request) return report(request.error(), kExitFault);
  const auto residency = change_residency(options.run_dir, *request);
  if (!residency) return report_answer(options.run_dir, residency.error());
  return print(*residency, options.json);
}

}  // namespace strata::cli
