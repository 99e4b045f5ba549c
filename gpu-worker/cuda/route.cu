#include "gpu-worker/cuda/route.h"

#include "gpu-worker/cuda/dispatch_small.cuh"
#include "gpu-worker/cuda/launch.h"
#include "gpu-worker/cuda/route_row.cuh"
#include "services/base/check.h"

namespace strata::gpu_worker::cuda {
namespace {

// Block: a row.
__global__ void __launch_bounds__(kRouteThreads) route_kernel(RouteArgs args) {
  __shared__ RouteShared shared;
  let_next_kernel_begin();
  await_earlier_kernels();
  route_row(args, blockIdx.x, shared);
}

// One block: a window of one row.
__global__ void __launch_bounds__(kRouteThreads)
    route_and_dispatch_kernel(RouteArgs route, DispatchArgs dispatch) {
  __shared__ RouteShared shared;
  __shared__ DispatchShared pairs;
  let_next_kernel_begin();
  await_earlier_kernels();
  route_row(route, 0, shared);
  __syncthreads();  // the ids are there
  dispatch_small(dispatch, pairs);
}

void check(const RouteArgs& args) {
  CHECK(args.rows > 0 && args.experts <= kExpertsMax, "{} experts", args.experts);
  CHECK(args.top_k > 0 && args.top_k <= args.experts && args.top_k <= kExpertsPerTokenMax, "{} of {} experts",
        args.top_k, args.experts);
}

}  // namespace

void route(const RouteArgs& args, cudaStream_t stream) {
  check(args);
  launch(route_kernel, {.grid = args.rows, .block = kRouteThreads, .early = true}, stream, args);
}

void route_and_dispatch(const RouteArgs& args, const DispatchArgs& dispatch, cudaStream_t stream) {
  if (args.rows > 1) {
    route(args, stream);
    dispatch_experts(dispatch, stream);
    return;
  }
  check(args);
  check_dispatch(dispatch);
  launch(route_and_dispatch_kernel, {.grid = 1, .block = kRouteThreads, .early = true}, stream, args,
         dispatch);
}

}  // namespace strata::gpu_worker::cuda
