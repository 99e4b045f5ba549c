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

// One block: a window of one row. What does not change within a window is there before the logits are.
__global__ void __launch_bounds__(kRouteThreads)
    route_and_dispatch_kernel(RouteArgs route, DispatchArgs dispatch) {
  __shared__ RouteShared shared;
  __shared__ DispatchShared pairs;
  __shared__ uint32_t places[kExpertsMax];
  __shared__ BoardTable boards;
  let_next_kernel_begin();
  for (uint32_t e = threadIdx.x; e < dispatch.experts; e += kRouteThreads)
    places[e] = dispatch.places.places[e];
  if (dispatch.boards != nullptr) {
    static_assert(sizeof(BoardTable) % sizeof(uint32_t) == 0);
    for (uint32_t i = threadIdx.x; i < sizeof(BoardTable) / sizeof(uint32_t); i += kRouteThreads)
      reinterpret_cast<uint32_t*>(&boards)[i] = reinterpret_cast<const uint32_t*>(dispatch.boards)[i];
  }
  await_earlier_kernels();
  const DispatchAhead ahead(dispatch);
  route_row(route, 0, shared);
  __syncthreads();  // the ids are there
  DispatchArgs at_hand = dispatch;
  at_hand.ids = shared.ids;
  at_hand.places.places = places;
  if (dispatch.boards != nullptr) at_hand.boards = &boards;
  dispatch_small(at_hand, pairs, &ahead);
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
