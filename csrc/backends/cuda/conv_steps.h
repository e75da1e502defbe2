// Launches the convolutions of networks: directly, as products of matrices, or as Linears of packed weights.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "backends/cuda/kernels/kernels.h"
#include "backends/cuda/kernels/network.h"
#include "backends/cuda/memory.h"
#include "backends/cuda/network_layout.h"

namespace tcim_lite::cuda {

class ConvLauncher {
 public:
  // Reserves what the convolutions need of `memory`. `plan`, `memory` and `last`, by value whether its channels are the
  // last axis, outlive the launcher. Throws Error(Unsupported), naming the op, for sizes beyond those of the kernels.
  ConvLauncher(const Plan& plan, CudaMemory& memory, const std::vector<bool>& last, cudaStream_t stream);

  // Once, when the memory is allocated: weights as the kernels read them.
  void prepare();
  // One of the plan's own steps.
  void launch(const ConvSpec& spec) const;

 private:
  bool is_laid_out(const ConvSpec& spec) const;
  bool is_copied_last(const ConvSpec& spec) const;
  ProductLayout layout_of(const ConvSpec& spec) const;
  void lay_out(const ConvSpec& spec) const;
  // Whether the weights are float16 numbers.
  bool dequantise(const ConvSpec& spec) const;
  ConvArgs conv_args(const ConvSpec& spec) const;
  ProductArgs product_args(const ConvSpec& spec) const;
  void launch_quantized(const ConvSpec& spec) const;
  void launch_codes(const ConvSpec& spec) const;

  const Plan& plan_;
  const CudaMemory& memory_;
  const cudaStream_t stream_;
  const std::vector<bool>& last_;
  std::map<const ConvSpec*, uint64_t> prepared_;  // where in scratch its weights are
  std::set<const ConvSpec*> exact_;               // of the quantised: those whose weights are float16 numbers
  uint64_t inexact_ = 0;                          // an int, while they are prepared
  uint64_t scratch_ = 0;                          // of one convolution at a time
};

}  // namespace tcim_lite::cuda
