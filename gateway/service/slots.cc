#include "gateway/service/slots.h"

#include <algorithm>
#include <boost/json/array.hpp>

#include "gateway/api/json_text.h"
#include "gateway/generation/openai_format.h"

namespace strata::gateway {

const std::vector<std::optional<Slots::Entry>>& Slots::place(const std::vector<Entry>& running,
                                                             uint32_t count) {
  for (auto& slot : slots_) {
    if (!slot) continue;
    const auto still = std::ranges::find(running, slot->ticket, &Entry::ticket);
    if (still == running.end()) {
      slot.reset();
    } else {
      slot = *still;
    }
  }
  if (slots_.size() < count) slots_.resize(count);
  for (const Entry& entry : running) {
    const auto here = [&](const auto& slot) { return slot && slot->ticket == entry.ticket; };
    if (std::ranges::any_of(slots_, here)) continue;
    const auto free = std::ranges::find_if(slots_, [](const auto& slot) { return !slot; });
    if (free != slots_.end()) {
      *free = entry;
    } else {
      slots_.emplace_back(entry);
    }
  }
  while (slots_.size() > count && !slots_.back()) slots_.pop_back();
  return slots_;
}

boost::json::object sampling_params(const Sampling& sampling) {
  boost::json::object out;
  out["seed"] = sampling.seed;
  out["temperature"] = float_json(sampling.temperature);
  out["top_k"] = sampling.top_k;
  out["top_p"] = float_json(sampling.top_p);
  out["min_p"] = float_json(sampling.min_p);
  out["repeat_last_n"] = sampling.penalty_last_n;
  out["repeat_penalty"] = float_json(sampling.repetition_penalty);
  out["presence_penalty"] = float_json(sampling.presence_penalty);
  out["frequency_penalty"] = float_json(sampling.frequency_penalty);
  return out;
}

std::string slots_json(const std::vector<std::optional<Slots::Entry>>& slots, const ModelCard& card) {
  boost::json::array out;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    boost::json::object slot;
    slot["id"] = i;
    slot["id_task"] = slots[i] ? static_cast<int64_t>(slots[i]->ticket) : -1;
    slot["n_ctx"] = card.context_tokens;
    slot["is_processing"] = slots[i].has_value();
    if (slots[i]) {
      const RunningView& view = slots[i]->view;
      const auto cap = static_cast<int64_t>(view.max_tokens.value_or(0));
      boost::json::object params = sampling_params(view.sampling), next;
      params["n_predict"] = view.max_tokens ? cap : -1;
      params["stream"] = view.stream;
      next["has_next_token"] = true;
      next["n_remain"] = view.max_tokens ? cap - view.generated_tokens : -1;
      next["n_decoded"] = view.generated_tokens;
      slot["params"] = std::move(params);
      slot["n_prompt_tokens"] = view.prompt_tokens;
      slot["next_token"] = std::move(next);
    }
    out.push_back(std::move(slot));
  }
  return to_json(out);
}

}  // namespace strata::gateway
