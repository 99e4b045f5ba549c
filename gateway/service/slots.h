#pragma once
// GET /slots in llama.cpp's shape: the engine's sequences and what runs in them. Content is shown of none
// (rule I5).

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gateway/admission/admission.h"
#include "gateway/generation/generation.h"
#include "gateway/service/model_card.h"

namespace strata::gateway {

// Which running request is in which slot: one that goes on stays where it was.
class Slots {
 public:
  struct Entry {
    TicketId ticket = 0;
    RunningView view = {};
  };
  // running: in the order of their tickets. The answer has `count` entries, or more if more run.
  const std::vector<std::optional<Entry>>& place(const std::vector<Entry>& running, uint32_t count);

 private:
  std::vector<std::optional<Entry>> slots_;
};

std::string slots_json(const std::vector<std::optional<Slots::Entry>>& slots, const ModelCard& card);

// llama.cpp's names of the sampling fields.
boost::json::object sampling_params(const Sampling& sampling);

}  // namespace strata::gateway
