#pragma once
// What a gpu-worker keeps on its device for prompts to come, as far as the gateway can tell: sequences that
// have ended, checkpoints, and the stream that says so. Tokens only; thread safe.

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gateway/testing/watch_log.h"
#include "services/snapshot/types.h"
#include "strata/v1/states.grpc.pb.h"

namespace strata::gateway::testing {

// Of the fake cluster's gpu-worker and store.
std::string fake_identity();  // serialized

class FakeStates {
 public:
  // states_max: above it the oldest one is evicted.
  explicit FakeStates(uint64_t instance, std::size_t states_max = SIZE_MAX)
      : instance_(instance), states_max_(states_max), log_(events_of(states_max)) {}

  struct Begun {
    uint32_t tokens = 0;
    bool live = false;
  };
  // The longest state that these tokens can be continued from, at least one left over. An idle sequence is
  // taken.
  Begun begin(std::span<const int32_t> tokens, const std::string& name_space);
  void checkpoint(std::span<const int32_t> tokens, const std::string& name_space);
  // A sequence has ended with exactly these tokens read.
  void keep(std::span<const int32_t> tokens, const std::string& name_space);
  std::vector<std::vector<int32_t>> live() const;  // the tokens of each, the oldest first
  std::size_t count() const;                       // checkpoints included

  grpc::Status watch(const grpc::ServerContext& context, grpc::ServerWriter<v1::WatchStatesResponse>& writer);

 private:
  struct State {
    std::vector<int32_t> tokens;
    std::string name_space;
    bool live = false;
  };
  void add(State state);
  void say_removed(uint64_t id, bool taken);
  // Enough for a watcher that is some milliseconds behind.
  static std::size_t events_of(std::size_t states_max) {
    return states_max == SIZE_MAX ? SIZE_MAX : 1000 + 2 * states_max;
  }

  const uint64_t instance_;
  const std::size_t states_max_;
  mutable std::mutex mutex_;
  std::map<uint64_t, State> states_;  // by id
  uint64_t last_id_ = 0;
  WatchLog<v1::WatchStatesResponse> log_;
};

}  // namespace strata::gateway::testing
