// CUDA_CHECK throws Error(Device) with the failing expression. It is all that kernels need of handles.h, whose headers
// of the standard library take nvcc longer than a kernel.
#pragma once

#include <cuda_runtime_api.h>

namespace tcim_lite::cuda {

[[noreturn]] void throw_cuda_error(cudaError_t error, const char* expression, const char* file, int line);

#define CUDA_CHECK(expression)                                                                \
  do {                                                                                        \
    const cudaError_t cuda_check_error = (expression);                                        \
    if (cuda_check_error != cudaSuccess)                                                      \
      ::tcim_lite::cuda::throw_cuda_error(cuda_check_error, #expression, __FILE__, __LINE__); \
  } while (false)

}  // namespace tcim_lite::cuda
