// A worker process that does nothing: what process_main_test starts, stops and feeds with wrong options.
#include <cstdio>

#include "services/obs/log.h"
#include "services/rpc/process_main.h"

int main(int argc, char** argv) {
  auto context = strata::rpc::start_process(argc, argv, "fixture", "Does nothing, for tests.");
  if (!context) return strata::rpc::startup_failed(context.error());
  std::printf("%s %s %s\n", context->name.c_str(), context->run_id.c_str(), context->config_hash.c_str());
  std::fflush(stdout);
  strata::rpc::wait_for_stop_signal();
  strata::obs::info("fixture", "stopped");
}
