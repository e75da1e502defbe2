// Launches the steps of a plan one by one.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_set>

#include "backends/cuda/blas.h"
#include "backends/cuda/kernels/kernels.h"
#include "backends/cuda/memory.h"
#include "backends/cuda/network_steps.h"
#include "graph/plan/plan.h"

namespace tcim_lite::cuda {

class StepLauncher {
 public:
  // Reserves what the steps need of `memory`, which outlives the launcher. Launches go to `stream`, of the current GPU.
  StepLauncher(const Graph& graph, const Plan& plan, CudaMemory& memory, cudaStream_t stream);

  // Once, when the memory is allocated.
  void prepare();
  void launch(const StepSpec& step);

 private:
  void launch_step(const LinearSpec& spec);
  void launch_step(const HeadsSpec& spec);
  void launch_step(const AttentionSpec& spec);
  void launch_step(const HeadsAttentionSpec& spec);
  void launch_step(const RmsNormSpec& spec);
  void launch_step(const ElementwiseSpec& spec);
  void launch_step(const SiluMulSpec& spec);
  void launch_step(const GatherRowSpec& spec);
  void launch_step(const CopySpec& spec);
  void launch_step(const MoERouteSpec& spec);
  void launch_step(const MoELinearSpec& spec);
  void launch_step(const MoECombineSpec& spec);
  void launch_step(const CausalConvSpec& spec);
  void launch_step(const DeltaRuleSpec& spec);
  void launch_step(const GateMulSpec& spec);
  // Steps over dense tensors.
  template <typename Spec>
  void launch_step(const Spec& spec) {
    network_.launch(spec);
  }

  // Looks at the weights of Linears that Hopper's tensor cores may multiply.
  void check_scales();
  // The Linear behind a step, if it alone reads y, quantises it, and may find its operand in place of it; else null.
  const LinearSpec* reader_of(const StepSpec& step) const;
  // What steps of attention need of `memory`.
  void reserve_attention(const Plan& plan, CudaMemory& memory);

  LinearArgs linear_args(const LinearSpec& spec) const;
  RowArgs row_args(const Rows& x, const Rows& y) const;
  HeadsArgs heads_args(const HeadChainSpec& chain) const;
  AttentionArgs attention_args(const AttentionSpec& spec) const;
  DecodeAttentionArgs decode_args(const AttentionSpec& spec, const AttentionArgs& args) const;

  const Plan& plan_;
  const CudaMemory& memory_;
  const cudaStream_t stream_;
  NetworkLauncher network_;
  std::unique_ptr<Blas> blas_;                          // null: not found, or no use for it so far
  std::unordered_set<const LinearSpec*> fp16_weights_;  // whose scales fp16 products may hold
  uint64_t linear_scratch_ = 0, left_ = 0, partials_ = 0, arrived_ = 0, outside_ = 0;  // offsets of scratch
  const LinearSpec* reader_ = nullptr;    // reader_of() the step that is being launched
  const LinearSpec* prepared_ = nullptr;  // whose operand has been left
};

}  // namespace tcim_lite::cuda
