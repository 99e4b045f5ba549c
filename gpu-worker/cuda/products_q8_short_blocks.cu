// Products of the types with blocks of 32 or 64 values.

#include "gpu-worker/cuda/products_q8_formats.cuh"

namespace strata::gpu_worker::cuda {

template void launch_format<Q4_0>(const ProductLaunch&, ProductPath, bool, cudaStream_t);
template void launch_format<Q4_1>(const ProductLaunch&, ProductPath, bool, cudaStream_t);
template void launch_format<Q5_0>(const ProductLaunch&, ProductPath, bool, cudaStream_t);
template void launch_format<Q5_1>(const ProductLaunch&, ProductPath, bool, cudaStream_t);
template void launch_format<Q8_0>(const ProductLaunch&, ProductPath, bool, cudaStream_t);
template void launch_format<Q2_0>(const ProductLaunch&, ProductPath, bool, cudaStream_t);
template void launch_format<IQ4_NL>(const ProductLaunch&, ProductPath, bool, cudaStream_t);
template void launch_format<MXFP4>(const ProductLaunch&, ProductPath, bool, cudaStream_t);
template void launch_format<NVFP4>(const ProductLaunch&, ProductPath, bool, cudaStream_t);

}  // namespace strata::gpu_worker::cuda
