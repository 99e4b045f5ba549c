// What the exchange actor answers to others: questions, an operator's changes, the learned profile, the end.

#include <algorithm>
#include <utility>

#include "cache-manager/exchange_actor.h"
#include "services/obs/log.h"

namespace strata::cache_manager {

// --- residency and usage

ResidencySummary ExchangeActor::summary() const {
  return {.attached = grant_ != nullptr,
          .policy = control_.policy(),
          .rates = control_.rates(),
          .limits = control_.limits(),
          .in_flight_max = control_.in_flight_max(),
          .own_quotas = control_.quotas().empty(),
          .changed = control_.changed(),
          .layers = layer_summaries(),
          .slots = static_cast<uint32_t>(slots_.slots().size()),
          .slots_used = slots_.used(),
          .in_flight = static_cast<uint32_t>(in_flight_.size()),
          .exchanges_total = exchanges_total_};
}

std::vector<LayerSummary> ExchangeActor::layer_summaries() const {
  std::vector<LayerSummary> layers(options_.experts_per_layer.size());
  for (const residency::ExpertKey& pin : control_.pins()) layers[pin.layer].pinned.push_back(pin.expert);
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    layers[layer].expert_count = options_.experts_per_layer[layer];
    layers[layer].exchanges = layer_exchanges_[layer];
  }
  if (policy_ == nullptr) return layers;
  std::vector<std::vector<uint32_t>> experts = slots_.experts();
  for (uint32_t layer = 0; layer < layers.size(); ++layer) {
    const shm::LayerUses& uses = grant_->usage.layer(layer);
    LayerSummary& summary = layers[layer];
    summary.quota = policy_->quotas()[layer];
    summary.experts = std::move(experts[layer]);
    summary.decode_hits = uses.decode_hits.load(std::memory_order_relaxed);
    summary.decode_misses = uses.decode_misses.load(std::memory_order_relaxed);
    summary.prefill_hits = uses.prefill_hits.load(std::memory_order_relaxed);
    summary.prefill_misses = uses.prefill_misses.load(std::memory_order_relaxed);
  }
  return layers;
}

void ExchangeActor::on(DescribeResidency message) { message.reply(summary()); }

// --- what an operator demands

void ExchangeActor::on(Change message) {
  if (policy_ == nullptr) {
    return message.reply(fail(Code::kUnavailable, "no gpu-worker is attached: try again when it is there"));
  }
  keep_topics();
  const Status applied = control_.apply(message.change, std::bind_front(&ExchangeActor::make_policy, this),
                                        policy_options(), policy_);
  if (!applied.ok()) return message.reply(tl::unexpected(applied));
  obs::info("exchange", "changed by an operator: policy {}, up to {} exchanges per window, {} pins",
            control_.policy(), control_.limits().exchanges_per_window, control_.pins().size());
  budget_.change(control_.limits());
  if (message.change.redirects() || control_.in_flight_max() == 0) call_off();
  propose(Propose::kUrgent);
  publish();
  message.reply(summary());
}

// --- the learned profile

void ExchangeActor::on(SaveProfile message) {
  std::string path = message.path.empty() ? options_.learned_path : message.path;
  if (!message.only_if_changed || learned_.changed()) {
    keep_topics();
    if (Status saved = learned_.save(path); !saved.ok())
      return message.reply(fail(saved.code(), "{}", saved.message()));
  }
  message.reply(path);
}

void ExchangeActor::on(SaveSometimes) {
  on(SaveProfile{.path = {}, .only_if_changed = true, .reply = [](const Result<std::string>& saved) {
                   if (!saved)
                     obs::warn("profile", "the learned profile was not saved: {}", saved.error().message());
                 }});
  actor::tell_after(self(), options_.save_every, SaveSometimes{});
}

// --- the end

void ExchangeActor::on(Stop message) {
  stopped_ = true;
  stopping_ = std::move(message.reply);
  call_off();
  answer_stop();
}

void ExchangeActor::answer_stop() {
  if (stopping_ && in_flight_.empty()) std::exchange(stopping_, nullptr)();
}

}  // namespace strata::cache_manager
