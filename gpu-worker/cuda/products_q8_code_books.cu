// Products of the types with code books.

#include "gpu-worker/cuda/products_q8_formats.cuh"

namespace strata::gpu_worker::cuda {

template void launch_format<IQ1_S>(const ProductLaunch&, ProductPath, bool, cudaStream_t);
template void launch_format<IQ1_M>(const ProductLaunch&, ProductPath, bool, cudaStream_t);
template void launch_format<IQ2_XXS>(const ProductLaunch&, ProductPath, bool, cudaStream_t);
template void launch_format<IQ2_XS>(const ProductLaunch&, ProductPath, bool, cudaStream_t);
template void launch_format<IQ2_S>(const ProductLaunch&, ProductPath, bool, cudaStream_t);
template void launch_format<IQ3_XXS>(const ProductLaunch&, ProductPath, bool, cudaStream_t);
template void launch_format<IQ3_S>(const ProductLaunch&, ProductPath, bool, cudaStream_t);

}  // namespace strata::gpu_worker::cuda
