#pragma once
// The gpu-worker as the rest of the gateway sees it: plain structs and callbacks, no gRPC types. The real one
// is grpc_engine.h; tests use a scripted one.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "gateway/conversations/checkpoint_positions.h"
#include "gateway/conversations/conversation_types.h"
#include "services/base/status.h"

namespace strata::gateway {

// What a request samples with, every field decided.
struct Sampling {
  float temperature = 1.0f;
  uint32_t top_k = 0;
  float top_p = 1.0f;
  float min_p = 0.0f;
  float repetition_penalty = 1.0f;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  uint32_t penalty_last_n = 64;
  uint64_t seed = 0;
  std::vector<std::pair<int32_t, float>> logit_bias = {};
  bool logprobs = false;
  uint32_t top_logprobs = 0;
};

struct EngineInfo {
  uint32_t context_tokens = 0;
  uint32_t sequences_max = 0;
  uint32_t prefill_chunk_tokens = 0;  // of a prompt, at most so many per window; 0: unknown
  bool captures_within_windows =
      false;  // a state that is wanted behind a token does not end the window there
  std::vector<std::string> degraded = {};  // names of missing peers
};

// The answer to one look at the engine.
struct EngineState {
  enum class Phase { kUnreachable, kLoading, kReady };
  Phase phase = Phase::kUnreachable;
  double progress = 0;   // of loading, 0..1
  EngineInfo info = {};  // when ready
};

// A state that the snapshot store holds.
struct ParkedState {
  SnapshotId id = {};
  uint32_t tokens = 0;  // of the prompt
};

// What the answer has to look like.
struct Constraint {
  std::string gbnf = {};
  uint32_t prompt_tokens = 0;  // the last ones of the prompt that belong to the grammar's text already
};

struct GenerateCall {
  std::string request_id = {};
  std::vector<int32_t> prompt_tokens = {};
  std::vector<int32_t> generated_tokens = {};  // of this answer, sent before the engine went away
  Sampling sampling = {};
  uint32_t max_tokens = 0;  // counts generated_tokens too
  std::vector<int32_t> end_tokens = {};
  NamespaceId name_space = {};                       // whose states it may be continued from
  uint32_t shared_prompt_tokens = 0;                 // at the beginning, that other namespaces may use, too
  std::vector<CheckpointPosition> checkpoints = {};  // states of the prompt that are worth keeping
  uint32_t answer_checkpoint_tokens = 0;   // a state behind every so many of the answer, the last two of them
  std::optional<ParkedState> parked = {};  // used if it holds more than the device does
  std::optional<Constraint> constraint = {};
  // Where the prompt leaves the model in its thinking: the token that ends it, chosen for the model behind so
  // many tokens. A constraint begins behind it.
  std::optional<int32_t> thinking_end = {};
  uint32_t thinking_tokens_max = 0;
  // Where it does not, but the model may open it itself: the token that it does so with. The budget is the
  // same; a constraint begins with the answer, that thinking included.
  std::optional<int32_t> thinking_begin = {};
};

struct PromptProgress {
  uint32_t total = 0;
  uint32_t cached = 0;
  uint32_t processed = 0;
  uint32_t kept = 0;  // behind so many tokens of the prompt lies the furthest state kept while it was read
};

struct GeneratedToken {
  int32_t id = 0;
  uint32_t index = 0;  // in the answer, counting resubmitted tokens
  float logprob = 0;
  std::vector<std::pair<int32_t, float>> top = {};
};

struct EngineFinished {
  enum class Reason { kEndToken, kLength, kContext };
  Reason reason = Reason::kEndToken;
  int32_t end_token = 0;  // with kEndToken
  uint32_t prompt_tokens_reused = 0;
  std::optional<Source> source = {};  // of these; kLive, kCheckpoint, kRam or kDisk
  std::string not_restored = {};      // why the parked state was not used although it held more
};

// The call is over; nothing follows. OK comes after EngineFinished, everything else instead of it.
struct EngineEnded {
  Status status;
};

using EngineEvent = std::variant<PromptProgress, GeneratedToken, EngineFinished, EngineEnded>;

// A running Generate call. Letting go of it does not end it; cancel() does, and EngineEnded still comes.
class EngineCall {
 public:
  virtual ~EngineCall() = default;
  virtual void cancel() = 0;
};

class EngineClient {
 public:
  virtual ~EngineClient() = default;
  // Both call back on a thread of their own, never before they return.
  virtual void poll(std::function<void(EngineState)> done) = 0;
  virtual std::shared_ptr<EngineCall> generate(GenerateCall call,
                                               std::function<void(EngineEvent)> on_event) = 0;
};

}  // namespace strata::gateway
