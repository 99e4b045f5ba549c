#pragma once
// A cache manager for tests of the gateway: the real socket and the stream that says what is parked. What it
// parks are names and tokens.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "services/snapshot/types.h"

namespace strata::gateway::testing {

class FakeStore {
 public:
  // Answers as cache-manager in this run directory, once start() was called.
  explicit FakeStore(std::string run_dir);
  ~FakeStore();

  void start();
  void die();  // what is on disk is still there after the next start()

  // Parks a state of these tokens; `base`, a state here, gives the first base_tokens of them.
  void park(const snapshot::SnapshotId& id, const snapshot::Hash128& name_space, std::vector<int32_t> tokens,
            bool on_disk_only, const snapshot::SnapshotId& base = {}, uint32_t base_tokens = 0);
  bool holds(const std::string& id_bytes) const;
  void lose(const snapshot::SnapshotId& id);  // and nobody is told

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata::gateway::testing
