#include "cache-manager/change_request.h"

#include "services/config/settings.h"

namespace strata::cache_manager {
namespace {

Status set_setting(ControlChange& change, const v1::LiveSetting& setting) {
  config::Settings parsed;  // its properties know names, bounds and how values are written
  config::PropertyBase* property = parsed.find(setting.name());
  if (property == nullptr) return fail(Code::kInvalidArgument, "there is no setting {}", setting.name());
  if (property->meta().applies != config::Applies::kLive) {
    return fail(Code::kInvalidArgument, "{} cannot be changed live; it takes effect with a {}",
                setting.name(), config::applies_name(property->meta().applies));
  }
  if (const Status read = property->parse(setting.value()); !read.ok())
    return fail(read.code(), "{}: {}", setting.name(), read.message());
  if (property == &parsed.experts_policy) change.policy = parsed.experts_policy().value;
  if (property == &parsed.experts_exchanges_per_window)
    change.exchanges_per_window = parsed.experts_exchanges_per_window();
  if (property == &parsed.experts_copy_budget) change.copy_budget = parsed.experts_copy_budget();
  if (property == &parsed.experts_exchanges_in_flight)
    change.exchanges_in_flight = parsed.experts_exchanges_in_flight();
  return {};
}

}  // namespace

Result<ControlChange> read_change(const v1::ChangeResidencyRequest& request) {
  ControlChange change;
  for (const v1::LiveSetting& setting : request.settings()) TRY_OK(set_setting(change, setting));
  if (request.has_quotas()) {
    change.quotas.emplace(request.quotas().slots().begin(), request.quotas().slots().end());
  }
  for (const v1::ExpertId& id : request.pin()) change.pin.push_back({id.layer(), id.expert()});
  for (const v1::ExpertId& id : request.unpin()) change.unpin.push_back({id.layer(), id.expert()});
  change.unpin_all = request.unpin_all();
  return change;
}

void write_live_settings(const std::string& policy, const ExchangeRates& rates,
                         v1::GetResidencyResponse& response) {
  config::Settings settings;
  settings.experts_policy.set({policy});
  settings.experts_exchanges_per_window.set(rates.exchanges_per_window);
  settings.experts_copy_budget.set(rates.copy_budget);
  settings.experts_exchanges_in_flight.set(rates.exchanges_in_flight);
  for (const config::PropertyBase* property : settings.all()) {
    if (property->meta().applies != config::Applies::kLive) continue;
    v1::LiveSetting& setting = *response.add_settings();
    setting.set_name(std::string(property->name()));
    setting.set_value(property->text());
  }
}

}  // namespace strata::cache_manager
