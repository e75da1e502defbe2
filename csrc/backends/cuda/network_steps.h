// Launches the steps over dense tensors, which networks from ONNX are made of.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "backends/cuda/conv_steps.h"
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
  void launch(const ConvSpec& spec) const { convs_.launch(spec); }
  void launch(const MatMulSpec& spec) const;
  void launch(const PoolSpec& spec) const;
  void launch(const MoveSpec& spec) const;
  void launch(const GatherSpec& spec) const;
  void launch(const ResampleSpec& spec) const;
  void launch(const TopKSpec& spec) const;
  void launch(const ResizerSpec& spec) const;
  void launch(const CastSpec& spec) const;

 private:
  void prepare(const MatMulSpec& spec) const;
  void check(const ResampleSpec& spec) const;

  const Plan& plan_;
  const CudaMemory& memory_;
  const cudaStream_t stream_;
  const std::vector<bool> last_;                   // by value: its channels are the last axis
  std::map<const MatMulSpec*, uint64_t> offsets_;  // where in scratch its operands' offsets are
  ConvLauncher convs_;
};

}  // namespace tcim_lite::cuda
