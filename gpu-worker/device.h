#pragma once
// What the window loop needs of a compute device: sequences with their state, and one pass over all layers
// for a window of rows. Two implementations: `host` (gpu-worker/host) and, in builds that have it, `cuda`.
// Used by the window loop's thread only, except where a function says otherwise.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpu-worker/loop_counters.h"
#include "gpu-worker/state_layout.h"
#include "services/base/limits.h"
#include "services/base/status.h"
#include "services/model/sampling.h"
#include "services/shm/usage_board.h"

namespace strata::gpu_worker {

class PagesGate;
class ResidentTable;
struct DispatchCounters;

// An open sequence. The generation makes the id of a closed sequence useless, so that a late user cannot
// reach its successor.
struct SequenceId {
  uint32_t index = 0;
  uint32_t generation = 0;
  bool operator==(const SequenceId&) const = default;
};

// For a RoutingOverride: another number for each sequence that is opened.
inline uint32_t routing_sequence(SequenceId id) { return id.generation * kSequencesMax + id.index; }

// What is needed to choose the token that follows a row. Everything is borrowed for the length of the window.
struct SampleRequest {
  const model::SamplingParams* params = nullptr;  // null: no token is wanted
  uint64_t position = 0;                          // of the chosen token, from the start of the sequence
  std::span<const int32_t> prompt;
  std::span<const int32_t> generated;
  std::span<const uint32_t> mask = {};  // as in model::Sampler: which tokens may be chosen; empty: all
};

// One token of a window. Rows of one sequence are consecutive and continue it.
struct DeviceRow {
  SequenceId sequence;
  int32_t token = 0;
  bool is_prompt =
      false;  // read by the prompt path; generated tokens are committed by the window path (numbers contract)
  SampleRequest sample;
  // Of the row's sequence, the same for all its rows: pages that may still be on their way. Waited for before
  // the first layer that touches pages. If they never come the row's result means nothing, and that of other
  // sequences' rows is what it would have been. Null: they are there.
  const PagesGate* pages = nullptr;
  // As capture() would do behind this row: into this slot, which no other row of the window has. Between the
  // rows of a sequence only where the device captures_within_windows(), and of a prompt only at multiples of
  // prompt_multiple() from the start of the sequence.
  std::optional<uint32_t> capture = {};
};

// The answer to a row with a SampleRequest.
struct RowChoice {
  uint32_t row = 0;
  bool usable = false;  // false: the logits held NaN or infinity, or were all equal; no token was chosen
  model::SampledToken token;
};

// How another process reaches the slot memory: on the host device a shared-memory segment
// (services/shm/arena.h), on the cuda device an IPC handle of the allocation, whose first byte is slot 0's.
struct ArenaHandle {
  std::string segment = {};
  std::string cuda_ipc = {};  // the bytes of a cudaIpcMemHandle_t; empty on the host device
  uint64_t bytes = 0;
  uint64_t instance_id = 0;
  uint32_t slot_count = 0;
  uint64_t slot_bytes = 0;
};

class Device {
 public:
  virtual ~Device() = default;

  virtual std::string_view type() const = 0;  // "host"
  // kResourceExhausted: all sequences of the plan are open. The sequence is empty.
  virtual Result<SequenceId> open_sequence() = 0;
  virtual void close_sequence(SequenceId id) = 0;
  // Runs the rows and advances their sequences. `choices` gets one entry per row that wants a token, in row
  // order. An error means that nothing is known of the sequences in the window any more: they can only be
  // closed.
  virtual Status run_window(std::span<const DeviceRow> rows, std::vector<RowChoice>& choices) = 0;
  // A prompt's bits do not depend on its cuts into windows as long as they lie at multiples of this from the
  // start of the sequence.
  virtual uint32_t prompt_multiple() const { return 1; }
  // Otherwise a window has to end where a state is wanted.
  virtual bool captures_within_windows() const { return false; }
  // The experts of the last window's rows: (layers, rows, k) in router order. Valid until the next
  // run_window().
  virtual std::span<const uint16_t> routed() const = 0;

  // --- Keeping states (docs/conversations.md). Between two windows:
  // Copies the fixed part of the sequence's state into one of the slots that the plan has for that.
  virtual void capture(SequenceId from, uint32_t slot) = 0;
  // The sequence goes on behind its first `tokens` tokens, whose pages it has or gets before its gate opens,
  // with the slot's fixed part.
  virtual void restore(SequenceId to, uint32_t slot, uint32_t tokens) = 0;
  // Gives `to` the pages of the first `tokens` tokens of `from`.
  virtual void copy_pages(SequenceId from, SequenceId to, uint32_t tokens) = 0;
  // Between the device and host memory, of state_layout()'s sizes; returns when the bytes are there. From one
  // thread at a time, also beside windows: then of tokens that the sequence has read before the window, and
  // to sequences that are not in it, or whose rows have a gate that has not opened. `tokens`: the sequence's
  // length, which the last page may not reach.
  virtual Status read_slot(uint32_t slot, std::span<std::byte> to) = 0;
  virtual Status write_slot(uint32_t slot, std::span<const std::byte> from) = 0;
  virtual Status read_page(SequenceId from, uint32_t page, uint32_t tokens, std::span<std::byte> to) = 0;
  virtual Status write_page(SequenceId to, uint32_t page, uint32_t tokens,
                            std::span<const std::byte> from) = 0;
  virtual const StateLayout& state_layout() const = 0;  // any thread
  virtual uint32_t checkpoint_slots() const = 0;        // any thread

  // Seconds spent since the last call, by stage.
  virtual StageSeconds take_stages() = 0;

  virtual ArenaHandle arena() const = 0;  // any thread
  virtual ResidentTable& residents() = 0;
  virtual const shm::UsageBoard& usage() const = 0;
  virtual const DispatchCounters& dispatch_counters() const = 0;  // any thread
  // What the device is doing now, for the watchdog: "layer 3 of 12: waiting for experts". Any thread.
  virtual std::string activity() const = 0;
};

}  // namespace strata::gpu_worker
