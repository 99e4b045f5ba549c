#pragma once
// Everything that a format needs in products: included by the files that divide the formats among them.

#include "gpu-worker/cuda/products_q8_rows.cuh"
#include "gpu-worker/cuda/products_q8_tile_kernel.cuh"
#include "gpu-worker/cuda/products_q8_window.cuh"

namespace strata::gpu_worker::cuda {

template <class F>
void launch_format(const ProductLaunch& args, ProductPath path, bool tensor_cores, cudaStream_t stream) {
  switch (path) {
    case ProductPath::kRows:
      return launch_rows<F>(args, stream);
    case ProductPath::kWindow:
      return launch_window<F, 8>(args, stream);
    case ProductPath::kSmallTiles:
      if (tensor_cores) return launch_tiles<F, SmallTile, true>(args, stream);
      return launch_tiles<F, SmallTile, false>(args, stream);
    case ProductPath::kLargeTiles:
      if (tensor_cores) return launch_tiles<F, LargeTile, true>(args, stream);
      return launch_tiles<F, LargeTile, false>(args, stream);
  }
}

}  // namespace strata::gpu_worker::cuda
