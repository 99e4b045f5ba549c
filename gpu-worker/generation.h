#pragma once
// One request for tokens on its way through the window loop, and what is reported about it.

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "gpu-worker/kept_states.h"
#include "services/base/status.h"
#include "services/model/sampling.h"

namespace strata::gpu_worker {

class AnswerConstraint;

// As on the wire.
struct ConstraintWish {
  std::string gbnf = {};       // empty: no grammar
  uint32_t prompt_tokens = 0;  // the prompt's last ones, that the grammar's text begins with
  std::optional<int32_t> thinking_end = {};
  std::optional<uint32_t> thinking_tokens_max = {};  // with thinking_end only
  std::optional<int32_t> thinking_begin = {};        // of the model's own thinking; with both of them only

  bool any() const { return !gbnf.empty() || thinking_tokens_max.has_value(); }
};

struct GenerationRequest {
  std::string request_id;
  std::vector<int32_t> prompt;
  std::vector<int32_t> generated;  // known tokens of the answer: fed again, not reported again
  model::SamplingParams sampling;
  uint32_t max_tokens = 0;  // of the answer, known ones included
  std::vector<int32_t> end_tokens;
  snapshot::Hash128 name_space = {};             // whose states it may go on from; zero: is never parked
  uint32_t shared_tokens = 0;                    // of the prompt, that others may go on from, too
  std::vector<CheckpointWish> checkpoints = {};  // ascending
  uint32_t answer_checkpoint_tokens = 0;         // behind every so many of the answer; 0: none
  // A parked state behind the first parked_tokens; zero: none.
  snapshot::SnapshotId parked_id = {};
  uint32_t parked_tokens = 0;
  ConstraintWish constraint = {};
};

struct PromptProgressed {
  uint32_t total = 0;
  uint32_t cached = 0;
  uint32_t processed = 0;
  uint32_t kept = 0;  // the furthest state that was kept on the way lies behind so many of its tokens
};

struct TokenChosen {
  uint32_t index = 0;  // in the answer
  model::SampledToken token;
};

enum class EndReason { kEndToken, kLength, kContext };

struct GenerationEnded {
  EndReason reason = EndReason::kLength;
  int32_t end_token = 0;  // with kEndToken; was not reported as chosen
  uint32_t prompt_tokens_computed = 0;
  uint32_t prompt_tokens_reused = 0;
  ReuseSource source = ReuseSource::kNone;
  std::string not_restored = {};  // why the parked state was not used although it held more
  uint32_t generated_tokens = 0;
  double prefill_seconds = 0;
  double decode_seconds = 0;
};

// A Status is the end, too: kCancelled, kResourceExhausted (no free sequence), kInternal (unusable logits),
// ...
using GenerationEvent = std::variant<PromptProgressed, TokenChosen, GenerationEnded, Status>;

// Gets the events of one generation, in order, the last one being GenerationEnded or a Status. Called on the
// event thread, never on the window loop's.
class GenerationListener {
 public:
  virtual ~GenerationListener() = default;
  virtual void on_event(GenerationEvent event) = 0;
};

class Generation {
 public:
  Generation(GenerationRequest request, std::shared_ptr<GenerationListener> listener)
      : request_(std::move(request)), listener_(std::move(listener)) {}

  const GenerationRequest& request() const { return request_; }
  const std::shared_ptr<GenerationListener>& listener() const { return listener_; }
  // From any thread; the loop looks at every window boundary and answers with kCancelled.
  void cancel() { cancelled_.store(true, std::memory_order_relaxed); }
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

  // Before it is submitted, where the request asks for one (constraint_maker.h); then the window loop's
  // alone.
  void constrain(std::shared_ptr<AnswerConstraint> constraint) { constraint_ = std::move(constraint); }
  AnswerConstraint* constraint() const { return constraint_.get(); }  // null: any token may come

 private:
  GenerationRequest request_;
  std::shared_ptr<GenerationListener> listener_;
  std::atomic<bool> cancelled_{false};
  std::shared_ptr<AnswerConstraint> constraint_;
};

}  // namespace strata::gpu_worker
