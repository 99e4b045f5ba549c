#include "services/cli/residency_view.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <charconv>
#include <cmath>
#include <set>

namespace strata::cli {

namespace json = boost::json;

namespace {

constexpr uint32_t kMapCells = 64;  // a layer with more experts has several in one cell

bool to_number(std::string_view text, uint32_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

struct Uses {
  uint64_t hits = 0, misses = 0;
  void add(uint64_t more_hits, uint64_t more_misses) {
    hits += more_hits;
    misses += more_misses;
  }
  uint64_t all() const { return hits + misses; }
  double rate() const { return static_cast<double>(hits) / static_cast<double>(all()); }
};

std::string percent(const Uses& uses) {
  return uses.all() == 0 ? "-" : fmt::format("{:.1f}%", 100 * uses.rate());
}

json::object uses_json(const Uses& uses) {
  json::object out{{"hits", uses.hits}, {"misses", uses.misses}};
  out["hit_rate"] = uses.all() == 0 ? json::value(nullptr) : json::value(uses.rate());
  return out;
}

Uses decode_of(const v1::LayerResidency& layer) { return {layer.decode_hits(), layer.decode_misses()}; }
Uses prefill_of(const v1::LayerResidency& layer) { return {layer.prefill_hits(), layer.prefill_misses()}; }

// One sign per cell of experts: how many of them are resident; a cell with a pinned one shows that.
std::string map_of(const v1::LayerResidency& layer) {
  static constexpr std::array<std::string_view, 5> kShades = {"\u00b7", "\u2591", "\u2592", "\u2593",
                                                              "\u2588"};
  const uint32_t count = layer.expert_count();
  const uint32_t cells = std::min(count, kMapCells);
  std::vector<uint32_t> resident(cells), size(cells);
  std::set<uint32_t> pinned;
  const auto cell_of = [&](uint32_t expert) {
    return static_cast<uint32_t>(uint64_t{std::min(expert, count - 1)} * cells / count);
  };
  for (uint32_t expert = 0; expert < count; ++expert) ++size[cell_of(expert)];
  for (const uint32_t expert : layer.experts()) ++resident[cell_of(expert)];
  for (const uint32_t expert : layer.pinned()) pinned.insert(cell_of(expert));
  std::string map;
  for (uint32_t cell = 0; cell < cells; ++cell) {
    const double share = static_cast<double>(resident[cell]) / size[cell];
    // The empty shade and the full one mean exactly that.
    const auto shade = static_cast<std::size_t>(std::ceil(share * (kShades.size() - 1)));
    map += pinned.contains(cell) ? "P" : kShades[std::min(shade, kShades.size() - 1)];
  }
  return map;
}

std::string rate_text(const v1::GetResidencyResponse& residency) {
  const double bytes = residency.copy_bytes_per_second_max();
  return fmt::format(
      "{:.4g} exchanges per window, {} in flight, {}", residency.exchanges_per_window_max(),
      residency.exchanges_in_flight_max(),
      std::isinf(bytes) ? "no bound of bytes" : fmt::format("{:.4g} MiB a second", bytes / (1 << 20)));
}

}  // namespace

Result<v1::ExpertId> parse_expert(std::string_view text) {
  const std::size_t colon = text.find(':');
  uint32_t layer = 0, expert = 0;
  if (colon == std::string_view::npos || !to_number(text.substr(0, colon), layer) ||
      !to_number(text.substr(colon + 1), expert)) {
    return fail(Code::kInvalidArgument, "'{}': expected LAYER:EXPERT, for example 3:17", text);
  }
  v1::ExpertId id;
  id.set_layer(layer);
  id.set_expert(expert);
  return id;
}

Result<v1::Quotas> parse_quotas(std::string_view text) {
  v1::Quotas quotas;
  if (text == "auto") return quotas;
  for (std::string_view rest = text;;) {
    const std::size_t comma = rest.find(',');
    uint32_t slots = 0;
    if (!to_number(rest.substr(0, comma), slots)) {
      return fail(Code::kInvalidArgument,
                  "'{}': expected auto, or a number of slots for each layer, for example 12,16,16", text);
    }
    quotas.add_slots(slots);
    if (comma == std::string_view::npos) return quotas;
    rest.remove_prefix(comma + 1);
  }
}

v1::GetResidencyResponse since(const v1::GetResidencyResponse& before, v1::GetResidencyResponse now) {
  const auto grown = [](uint64_t earlier, uint64_t later) {
    return later < earlier ? later : later - earlier;
  };
  now.set_exchanges_total(grown(before.exchanges_total(), now.exchanges_total()));
  for (int i = 0; i < std::min(before.layers_size(), now.layers_size()); ++i) {
    const v1::LayerResidency& was = before.layers(i);
    v1::LayerResidency& is = *now.mutable_layers(i);
    is.set_exchanges(grown(was.exchanges(), is.exchanges()));
    is.set_decode_hits(grown(was.decode_hits(), is.decode_hits()));
    is.set_decode_misses(grown(was.decode_misses(), is.decode_misses()));
    is.set_prefill_hits(grown(was.prefill_hits(), is.prefill_hits()));
    is.set_prefill_misses(grown(was.prefill_misses(), is.prefill_misses()));
  }
  return now;
}

std::string residency_text(const v1::GetResidencyResponse& residency) {
  Uses decode, prefill;
  for (const v1::LayerResidency& layer : residency.layers()) {
    decode.add(layer.decode_hits(), layer.decode_misses());
    prefill.add(layer.prefill_hits(), layer.prefill_misses());
  }
  std::string text;
  text += fmt::format("residency  {} of {} slots, policy {}{}\n", residency.slots_used(), residency.slots(),
                      residency.policy(), residency.attached() ? "" : "; no gpu-worker is attached");
  text += fmt::format("exchanges  {}, {} in flight; at most {}\n", residency.exchanges_total(),
                      residency.exchanges_in_flight(), rate_text(residency));
  text += fmt::format("hits       {} of generated, {} of prompt tokens' uses\n", percent(decode),
                      percent(prefill));
  if (residency.changed_size() > 0) {
    text +=
        fmt::format("changed    {}: until the cache manager restarts, which begins with the configuration\n",
                    fmt::join(residency.changed(), ", "));
  }
  text += fmt::format("\n{:>5} {:>6} {:>8} {:>6} {:>9} {:>7} {:>7}  {}\n", "layer", "quota", "resident",
                      "pinned", "exchanges", "hits", "prompt", "experts (shade: share resident, P: pinned)");
  for (const v1::LayerResidency& layer : residency.layers()) {
    text += fmt::format("{:>5} {:>6} {:>8} {:>6} {:>9} {:>7} {:>7}  {}\n", layer.layer(), layer.quota(),
                        layer.experts_size(), layer.pinned_size(), layer.exchanges(),
                        percent(decode_of(layer)), percent(prefill_of(layer)), map_of(layer));
  }
  return text;
}

std::string residency_json(const v1::GetResidencyResponse& residency) {
  const double bytes = residency.copy_bytes_per_second_max();
  json::object settings;
  for (const v1::LiveSetting& setting : residency.settings()) settings[setting.name()] = setting.value();
  json::array layers;
  Uses decode, prefill;
  for (const v1::LayerResidency& layer : residency.layers()) {
    decode.add(layer.decode_hits(), layer.decode_misses());
    prefill.add(layer.prefill_hits(), layer.prefill_misses());
    layers.push_back(json::object{{"layer", layer.layer()},
                                  {"expert_count", layer.expert_count()},
                                  {"quota", layer.quota()},
                                  {"experts", json::array(layer.experts().begin(), layer.experts().end())},
                                  {"pinned", json::array(layer.pinned().begin(), layer.pinned().end())},
                                  {"exchanges", layer.exchanges()},
                                  {"decode", uses_json(decode_of(layer))},
                                  {"prefill", uses_json(prefill_of(layer))}});
  }
  const json::object out{
      {"attached", residency.attached()},
      {"policy", residency.policy()},
      {"slots", residency.slots()},
      {"slots_used", residency.slots_used()},
      {"exchanges_total", residency.exchanges_total()},
      {"exchanges_in_flight", residency.exchanges_in_flight()},
      {"limits", json::object{{"exchanges_per_window", residency.exchanges_per_window_max()},
                              {"exchanges_in_flight", residency.exchanges_in_flight_max()},
                              {"copy_bytes_per_second",
                               std::isinf(bytes) ? json::value(nullptr) : json::value(bytes)}}},
      {"settings", settings},
      {"own_quotas", residency.own_quotas()},
      {"changed", json::array(residency.changed().begin(), residency.changed().end())},
      {"decode", uses_json(decode)},
      {"prefill", uses_json(prefill)},
      {"layers", layers}};
  return json::serialize(out) + "\n";
}

}  // namespace strata::cli
