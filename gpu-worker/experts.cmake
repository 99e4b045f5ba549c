# Missed experts: from the routed layer to the workers' boards and back. The first library has no gRPC.
strata_library(strata_expert_boards
  SOURCES board_substitute.cc expert_dispatch.cc expert_groups.cc expert_share.cc expert_workers.cc
  DEPS strata_model strata_shm strata_sys)

strata_library(strata_expert_dispatch
  SOURCES expert_hub_service.cc
  DEPS strata_expert_boards strata_rpc
  PRIVATE_DEPS strata_obs)

# The other side of the board in these tests is the real one.
strata_test(expert_dispatch_test
  SOURCES board_substitute_test.cc expert_dispatch_test.cc expert_workers_test.cc lost_worker_test.cc
  DEPS strata_expert_boards strata_cpu_expert_worker
  TIMEOUT 600)  # under ThreadSanitizer on a busy machine

strata_test(expert_hub_test
  SOURCES expert_hub_service_test.cc
  DEPS strata_expert_dispatch strata_board_client)
