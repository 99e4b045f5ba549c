#pragma once
// Makes the constraints of answers before they are submitted: compiles their grammars and reads the tokens
// that are known already. That takes up to seconds where a grammar is new and large, so it has threads of its
// own: no window and no other request waits for it. Where a grammar was too large to be prepared before its
// request, they go on with its masks while no request waits. They also make the grammar library's view of the
// model's tokens, once, as soon as the maker exists. One thread more is for answers that run: what their next
// token takes longer than there is time between two windows (finish()).

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "gpu-worker/generation.h"
#include "services/base/status.h"
#include "services/grammar/grammar_cache.h"

namespace strata::gpu_worker {

struct ConstraintMakerOptions {
  uint32_t vocab = 0;  // of the model's logits
  // The model's tokens, at most `vocab` of them. Called once, on a thread of the maker.
  std::function<Result<std::shared_ptr<const grammar::Vocabulary>>()> load_vocabulary;
  grammar::GrammarCache::Limits cache = {};
  uint32_t threads = 2;       // a large grammar delays one that is known by a thread, not by its compilation
  uint32_t waiting_max = 64;  // requests
};

class ConstraintMaker {
 public:
  explicit ConstraintMaker(ConstraintMakerOptions options);
  ~ConstraintMaker();  // stop()
  ConstraintMaker(const ConstraintMaker&) = delete;
  ConstraintMaker& operator=(const ConstraintMaker&) = delete;

  // Any thread. Constrains the generation as its request asks, which must be something
  // (ConstraintWish::any()), and calls `done` once: on a thread of the maker, or on the caller's where there
  // is nothing to wait for. kInvalidArgument: no grammar, too large, or known tokens do not fit; kCancelled;
  // kResourceExhausted: waiting_max requests wait; kUnavailable: stopped; errors of load_vocabulary.
  using Done = std::function<void(Status)>;
  void constrain(std::shared_ptr<Generation> generation, Done done);

  // Any thread. Finishes the generation's constraint, which is not ready, and calls `then`, which must not
  // block: on a thread of the maker, or on the caller's where the maker has stopped; then the constraint was
  // given up with kUnavailable.
  void finish(std::shared_ptr<Generation> generation, std::function<void()> then);

  // Grammars may still have masks that are to be made beforehand.
  bool is_preparing() const;

  // What waits ends with kUnavailable; returns when what is being made is done.
  void stop();

 private:
  struct Job {
    std::shared_ptr<Generation> generation;
    Done done;
  };

  struct Unfinished {
    std::shared_ptr<Generation> generation;
    std::function<void()> then;
  };

  void run(uint32_t thread);
  void run_finisher();
  void load();
  void prepare(std::unique_lock<std::mutex>& lock);
  Status make(Generation& generation);

  const ConstraintMakerOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  std::condition_variable changed_unfinished_;
  std::deque<Unfinished> unfinished_;
  bool loaded_ = false;      // load_vocabulary has returned; what it gave does not change any more
  bool unprepared_ = false;  // there may be masks to be made
  bool preparing_ = false;   // by one thread: the other is for requests
  bool stop_ = false;
  Status load_status_;
  std::optional<grammar::GrammarCache> cache_;
  std::vector<std::thread> threads_;
};

}  // namespace strata::gpu_worker
