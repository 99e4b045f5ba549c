#pragma once
// For tests: a sequence's state taken out of a device and brought into another.

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "gpu-worker/device.h"
#include "gpu-worker/pages_gate.h"
#include "services/base/check.h"

namespace strata::gpu_worker::state_tests {

struct OutsideState {
  uint32_t tokens = 0;
  std::vector<std::byte> fixed;
  std::vector<std::vector<std::byte>> pages;
  bool operator==(const OutsideState&) const = default;
};

// What has been captured into the slot, with the sequence's pages.
inline OutsideState take_out_captured(Device& device, SequenceId id, uint32_t tokens, uint32_t slot = 0) {
  const StateLayout& layout = device.state_layout();
  OutsideState state{.tokens = tokens, .fixed = std::vector<std::byte>(layout.fixed_bytes()), .pages = {}};
  CHECK(device.read_slot(slot, state.fixed).ok());
  for (uint32_t page = 0; page < state_pages(tokens); ++page) {
    // What a page does not hold is zero, whatever was there.
    auto& bytes = state.pages.emplace_back(layout.page_bytes(), std::byte{0x5a});
    CHECK(device.read_page(id, page, tokens, bytes).ok());
  }
  return state;
}

inline OutsideState take_out(Device& device, SequenceId id, uint32_t tokens, uint32_t slot = 0) {
  device.capture(id, slot);
  return take_out_captured(device, id, tokens, slot);
}

// Into an open sequence.
inline void bring_in(Device& device, SequenceId id, const OutsideState& state, uint32_t slot = 0) {
  for (uint32_t page = 0; page < state.pages.size(); ++page)
    CHECK(device.write_page(id, page, state.tokens, state.pages[page]).ok());
  CHECK(device.write_slot(slot, state.fixed).ok());
  device.restore(id, slot, state.tokens);
}

// Feeds tokens [begin, end) in windows of at most `chunk` rows and returns the last one's choice.
inline RowChoice feed(Device& device, SequenceId id, std::span<const int32_t> tokens, uint32_t begin,
                      uint32_t end, const model::SamplingParams& sampling, uint32_t chunk) {
  std::vector<RowChoice> choices;
  for (uint32_t at = begin; at < end; at += chunk) {
    std::vector<DeviceRow> rows;
    for (uint32_t i = at; i < std::min(at + chunk, end); ++i)
      rows.push_back({.sequence = id, .token = tokens[i], .is_prompt = true, .sample = {}});
    if (at + chunk >= end)
      rows.back().sample = {.params = &sampling, .position = end, .prompt = {}, .generated = {}};
    const Status status = device.run_window(rows, choices);
    CHECK(status.ok(), "{}", status.message());
  }
  return choices.at(0);
}

// Into an open sequence, whose next tokens [state.tokens, tokens.size()) are read in one window meanwhile:
// the pages come when that window waits for them.
inline RowChoice bring_in_under_a_window(Device& device, SequenceId id, const OutsideState& state,
                                         std::span<const int32_t> tokens,
                                         const model::SamplingParams& sampling, uint32_t slot = 0) {
  CHECK(device.write_slot(slot, state.fixed).ok());
  device.restore(id, slot, state.tokens);
  PagesGate gate;
  std::thread copier([&] {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (device.activity().find("waiting for pages") == std::string::npos) {
      CHECK(std::chrono::steady_clock::now() < deadline, "{}", device.activity());
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    for (uint32_t page = 0; page < state.pages.size(); ++page)
      CHECK(device.write_page(id, page, state.tokens, state.pages[page]).ok());
    gate.open({});
  });
  std::vector<DeviceRow> rows;
  for (std::size_t i = state.tokens; i < tokens.size(); ++i)
    rows.push_back({.sequence = id, .token = tokens[i], .is_prompt = true, .sample = {}, .pages = &gate});
  rows.back().sample = {.params = &sampling, .position = tokens.size(), .prompt = {}, .generated = {}};
  std::vector<RowChoice> choices;
  const Status status = device.run_window(rows, choices);
  copier.join();
  CHECK(status.ok(), "{}", status.message());
  return choices.at(0);
}

}  // namespace strata::gpu_worker::state_tests
