// cuBLAS for products of many rows, where it is found when a model is loaded. It is optional: without it the decode
// kernels compute such a product in several passes.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "backends/cuda/handles.h"
#include "backends/cuda/kernels/kernels.h"
#include "base/no_copy.h"

namespace tcim_lite::cuda {

class Blas : public NoCopy {
 public:
  // Null when no libcublas can be loaded; the log says so once. TCIM_LITE_CUBLAS names a file, or is "off".
  static std::unique_ptr<Blas> find(cudaStream_t stream);
  ~Blas();

  // products [rows, outputs] = x W^T, summed in fp32 and rounded to `elem`; infinite where that overflows. x and W:
  // fp16.
  void multiply(const LinearArgs& args, Elem elem, void* products);

 private:
  Blas() = default;

  void* handle_ = nullptr;
  DeviceBytes workspace_;
};

}  // namespace tcim_lite::cuda
