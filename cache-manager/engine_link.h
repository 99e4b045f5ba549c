#pragma once
// The gpu-worker as the cache manager sees it: a grant of shared memory, and the calls of an exchange.
// An interface, so that the exchanges are tested without processes. Replies may come on any thread.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cache-manager/arena_memory.h"
#include "services/base/status.h"
#include "services/residency/policy.h"
#include "services/shm/residency_table.h"
#include "services/shm/usage_board.h"

namespace strata::cache_manager {

// What one attachment may use. Kept alive by whoever still reads or writes it, also after the attachment has
// ended: the memory then belongs to nobody, but it is there.
struct Grant {
  uint64_t epoch = 0;
  uint32_t slot_count = 0;
  uint64_t slot_bytes = 0;
  std::shared_ptr<ArenaMemory> arena;
  shm::ResidencyTable table;
  shm::UsageBoard usage;
};

struct SlotExchange {
  uint32_t slot = 0;
  residency::ExpertKey incoming;
};

struct CopiedSlot {
  uint32_t slot = 0;
  std::optional<uint64_t> checksum;  // of what was copied; given for all slots or for none
};

class EngineLink {
 public:
  virtual ~EngineLink() = default;

  struct AttachEvents {
    std::function<void(std::shared_ptr<Grant>)> granted;  // at most once
    std::function<void(Status)> ended;                    // exactly once, last
  };
  // Waits for a gpu-worker that is not there yet. One attachment at a time: not again before `ended`.
  virtual void attach(AttachEvents events) = 0;
  // Ends the present attachment.
  virtual void detach() = 0;

  virtual void retire(uint64_t epoch, std::vector<SlotExchange> exchanges,
                      std::function<void(Result<std::vector<bool>>)> reply) = 0;
  virtual void land(uint64_t epoch, std::vector<CopiedSlot> slots, std::function<void(Status)> reply) = 0;
  virtual void abandon(uint64_t epoch, std::vector<uint32_t> slots, std::function<void(Status)> reply) = 0;
};

}  // namespace strata::cache_manager
