#include "gpu-worker/constraint_maker.h"

#include <fmt/format.h>

#include <utility>

#include "gpu-worker/answer_constraint.h"
#include "services/base/check.h"
#include "services/obs/log.h"
#include "services/sys/cpus.h"

namespace strata::gpu_worker {
namespace {

// Stopping waits for it, and a request where both threads are busy.
constexpr std::chrono::milliseconds kPreparedAtATime{20};

Status stopping() { return {Code::kUnavailable, "the engine is stopping"}; }

void give_up(Generation& generation, const std::function<void()>& then) {
  generation.constraint()->give_up(stopping());
  then();
}

}  // namespace

ConstraintMaker::ConstraintMaker(ConstraintMakerOptions options) : options_(std::move(options)) {
  CHECK(options_.threads > 0 && options_.vocab > 0);
  for (uint32_t i = 0; i < options_.threads; ++i) threads_.emplace_back([this, i] { run(i); });
  threads_.emplace_back([this] { run_finisher(); });
}

ConstraintMaker::~ConstraintMaker() { stop(); }

void ConstraintMaker::constrain(std::shared_ptr<Generation> generation, Done done) {
  const ConstraintWish& wish = generation->request().constraint;
  CHECK(wish.any());
  // A budget of thinking alone needs no grammar.
  if (wish.gbnf.empty()) return done(make(*generation));
  Status refused;
  {
    const std::lock_guard lock(mutex_);
    if (stop_) {
      refused = stopping();
    } else if (jobs_.size() >= options_.waiting_max) {
      refused =
          Status(Code::kResourceExhausted, fmt::format("{} grammars wait to be compiled", jobs_.size()));
    } else {
      jobs_.push_back({std::move(generation), std::move(done)});
      changed_.notify_one();
      return;
    }
  }
  done(std::move(refused));
}

void ConstraintMaker::finish(std::shared_ptr<Generation> generation, std::function<void()> then) {
  {
    const std::lock_guard lock(mutex_);
    if (!stop_) {
      unfinished_.push_back({std::move(generation), std::move(then)});
      changed_unfinished_.notify_one();
      return;
    }
  }
  give_up(*generation, then);
}

bool ConstraintMaker::is_preparing() const {
  const std::lock_guard lock(mutex_);
  return unprepared_ || preparing_;
}

void ConstraintMaker::stop() {
  std::deque<Job> left;
  std::deque<Unfinished> unfinished;
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(stop_, true)) return;
    left.swap(jobs_);
    unfinished.swap(unfinished_);
  }
  changed_.notify_all();
  changed_unfinished_.notify_all();
  for (const Unfinished& each : unfinished) give_up(*each.generation, each.then);
  for (const Job& job : left) job.done(stopping());
  for (std::thread& thread : threads_) thread.join();
}

void ConstraintMaker::run(uint32_t thread) {
  sys::name_this_thread(fmt::format("grammar-{}", thread));
  if (thread == 0) load();
  for (;;) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      const auto prepares = [this] { return unprepared_ && !preparing_; };
      changed_.wait(lock, [&] { return stop_ || (loaded_ && (!jobs_.empty() || prepares())); });
      if (stop_) return;
      if (jobs_.empty()) {
        prepare(lock);
        continue;
      }
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    job.done(make(*job.generation));
    {
      const std::lock_guard lock(mutex_);
      unprepared_ = cache_.has_value();
    }
    changed_.notify_one();
  }
}

void ConstraintMaker::run_finisher() {
  sys::name_this_thread("grammar-late");
  for (std::unique_lock lock(mutex_);;) {
    changed_unfinished_.wait(lock, [this] { return stop_ || !unfinished_.empty(); });
    if (stop_) return;
    const Unfinished next = std::move(unfinished_.front());
    unfinished_.pop_front();
    lock.unlock();
    next.generation->constraint()->finish();
    next.then();
    lock.lock();
  }
}

void ConstraintMaker::prepare(std::unique_lock<std::mutex>& lock) {
  preparing_ = true;
  unprepared_ = false;  // what comes meanwhile sets it again
  lock.unlock();
  const bool more = cache_->prepare_more(kPreparedAtATime);
  lock.lock();
  preparing_ = false;
  unprepared_ = unprepared_ || more;
}

void ConstraintMaker::load() {
  auto vocabulary = options_.load_vocabulary();
  {
    const std::lock_guard lock(mutex_);
    if (!vocabulary) {
      load_status_ = Status(vocabulary.error().code(),
                            fmt::format("answers cannot be constrained: {}", vocabulary.error().message()));
      obs::warn("grammar", "{}", load_status_.message());
    } else {
      cache_.emplace(std::move(*vocabulary), options_.cache);
    }
    loaded_ = true;
  }
  changed_.notify_all();
}

Status ConstraintMaker::make(Generation& generation) {
  if (generation.cancelled()) return {Code::kCancelled, "cancelled by the caller"};
  const GenerationRequest& request = generation.request();
  std::shared_ptr<const grammar::Grammar> grammar;
  if (!request.constraint.gbnf.empty()) {
    TRY_OK(load_status_);
    auto compiled = cache_->get(request.constraint.gbnf);
    // Whatever its code, it is the request's fault.
    if (!compiled) return fail(Code::kInvalidArgument, "constraint.gbnf: {}", compiled.error().message());
    grammar = std::move(*compiled);
  }
  TRY(auto constraint, AnswerConstraint::create(request, std::move(grammar), options_.vocab));
  generation.constrain(std::move(constraint));
  return {};
}

}  // namespace strata::gpu_worker
