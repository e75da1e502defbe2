// Launches the steps over dense tensors, which networks from ONNX are made of.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "backends/cuda/kernels/kernels.h"
#include "backends/cuda/kernels/network.h"
#include "backends/cuda/memory.h"
#include "graph/plan/plan.h"

namespace tcim_lite::cuda {

class NetworkLauncher {
 public:
  // Reserves what the steps need of `memory`. `plan` and `memory` outlive the launcher. Throws Error(Unsupported),
  // naming the op, for sizes beyond those of the kernels.
  NetworkLauncher(const Graph& graph, const Plan& plan, CudaMemory& memory, cudaStream_t stream);

  // Once, when the memory is allocated: weights and tables as the kernels read them. Throws Error(Format) for an index
  // of a Resample beyond its axis.
  void prepare();

  // Of the plan's own steps.
  void launch(const BroadcastSpec& spec) const;
  void launch(const UnarySpec& spec) const;
  void launch(const ReduceSpec& spec) const;
  void launch(const SoftmaxSpec& spec) const;
  void launch(const LayerNormSpec& spec) const;
  void launch(const ConvSpec& spec) const;
  void launch(const MatMulSpec& spec) const;
  void launch(const PoolSpec& spec) const;
  void launch(const MoveSpec& spec) const;
  void launch(const GatherSpec& spec) const;
  void launch(const ResampleSpec& spec) const;
  void launch(const TopKSpec& spec) const;
  void launch(const ResizerSpec& spec) const;

 private:
  const void* operand(const Operand& operand) const;
  const int* refused(uint32_t value) const;
  bool is_laid_out(const ConvSpec& spec) const;
  bool is_copied_last(const ConvSpec& spec) const;
  ProductLayout layout_of(const ConvSpec& spec) const;
  ConvArgs conv_args(const ConvSpec& spec) const;
  ProductArgs product_args(const ConvSpec& spec) const;
  void launch_quantized(const ConvSpec& spec) const;
  void launch_codes(const ConvSpec& spec) const;
  void prepare(const ConvSpec& spec, uint64_t at) const;
  void prepare(const MatMulSpec& spec, uint64_t at) const;
  void check(const ResampleSpec& spec) const;

  const Plan& plan_;
  const CudaMemory& memory_;
  const cudaStream_t stream_;
  const std::vector<bool> last_;              // by value: its channels are the last axis
  std::map<const void*, uint64_t> prepared_;  // by step: where in scratch its weights or tables are
  std::set<const void*> exact_;               // quantised convolutions whose weights are float16 numbers
  uint64_t inexact_ = 0;                      // an int, while they are prepared
  uint64_t scratch_ = 0;                      // of one convolution at a time
};

}  // namespace tcim_lite::cuda
