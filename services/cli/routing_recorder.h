#pragma once
// Records the routing of a running cluster (proto/strata/v1/routing.proto) while somebody else uses it.

#include <memory>
#include <string>

#include "services/base/status.h"
#include "services/residency/trace.h"
#include "strata/v1/routing.pb.h"

namespace strata::cli {

// Puts rows together: a conversation per sequence, in the order in which they began. Rows that are missing
// leave no hole: what follows is appended.
class TraceAssembly {
 public:
  explicit TraceAssembly(const v1::RoutingShape& shape);
  // kDataLoss: a message whose parts do not fit each other or the shape.
  Status add(const v1::RecordRoutingResponse& message);

  uint64_t dropped_rows() const { return dropped_rows_; }
  const residency::RoutingTrace& trace() const { return trace_; }

 private:
  residency::RoutingTrace trace_;
  std::vector<uint32_t> sequences_;  // of each conversation
  uint64_t dropped_rows_ = 0;
};

struct RecordedRouting {
  std::string model_fingerprint;
  residency::RoutingTrace trace;
  uint64_t dropped_rows = 0;  // that windows made and nobody read in time
};

class RoutingRecorder {
 public:
  // kUnavailable: no gpu-worker answers there. kResourceExhausted: another recording is running.
  static Result<std::unique_ptr<RoutingRecorder>> begin(const std::string& run_dir);
  ~RoutingRecorder();  // gives the recording up
  RoutingRecorder(const RoutingRecorder&) = delete;
  RoutingRecorder& operator=(const RoutingRecorder&) = delete;

  // Everything up to now. kAborted: the gpu-worker ended meanwhile, or the recording did.
  Result<RecordedRouting> end();

 private:
  struct Impl;
  explicit RoutingRecorder(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata::cli
