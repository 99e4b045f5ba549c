#pragma once
// How a child says that it is ready: Process.GetStatus over its socket.

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "services/base/status.h"
#include "strata/v1/process.pb.h"

namespace strata::cli {

class StatusSource {
 public:
  virtual ~StatusSource() = default;
  // Answers once, from any thread; a process that does not listen yet is an error like any other.
  virtual void ask(const std::string& process, std::function<void(Result<v1::GetStatusResponse>)> answer) = 0;
};

class GrpcStatusSource final : public StatusSource {
 public:
  explicit GrpcStatusSource(std::string run_dir);
  ~GrpcStatusSource() override;  // cancels open questions and waits for their answers
  void ask(const std::string& process, std::function<void(Result<v1::GetStatusResponse>)> answer) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata::cli
