// Products of the types with blocks of 256 values and no code book.

#include "gpu-worker/cuda/products_q8_formats.cuh"

namespace strata::gpu_worker::cuda {

template void launch_format<Q2_K>(const ProductLaunch&, ProductPath, bool, cudaStream_t);
template void launch_format<Q3_K>(const ProductLaunch&, ProductPath, bool, cudaStream_t);
template void launch_format<Q4_K>(const ProductLaunch&, ProductPath, bool, cudaStream_t);
template void launch_format<Q5_K>(const ProductLaunch&, ProductPath, bool, cudaStream_t);
template void launch_format<Q6_K>(const ProductLaunch&, ProductPath, bool, cudaStream_t);
template void launch_format<IQ4_XS>(const ProductLaunch&, ProductPath, bool, cudaStream_t);

}  // namespace strata::gpu_worker::cuda
