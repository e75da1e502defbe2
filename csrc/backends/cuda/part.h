// One device's share of a model: its plan, the GPU memory the plan works in, and the launches of its steps.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "backends/backend.h"
#include "backends/cuda/blas.h"
#include "backends/cuda/decode/kernel.h"
#include "backends/cuda/handles.h"
#include "backends/cuda/kernels/kernels.h"
#include "graph/plan/plan.h"

namespace tcim_lite::cuda {

// Over how many blocks the rows of a KV head are split when a slot has one token.
int decode_splits(const AttentionSpec& spec);

class CudaPart {
 public:
  // `refused_host` is pinned and outlives the part.
  CudaPart(Part part, bool float_math, int gpu, int* refused_host);

  // Throws Error(Unsupported) unless the first part computes the same rows of what is gathered.
  void check_exchange(const CudaPart& first) const;

  int gpu() const noexcept { return gpu_; }
  cudaStream_t stream() const noexcept { return stream_.get(); }
  size_t num_gathers() const noexcept { return plan_.gathers.size(); }
  uint64_t scratch_bytes() const noexcept { return scratch_bytes_; }
  const Plan& plan() const noexcept { return plan_; }
  const Graph& graph() const noexcept { return *graph_; }
  // The input port of a length.
  size_t port_of(uint32_t length) const;

  // Addresses of the next launches. Throws Error(Argument) for memory that no GPU reaches.
  void bind(const PartMemory& memory);
  // Launch on stream(): the inputs, the steps before gather `index` or the end, and what completes the outputs.
  void launch_inputs();
  void launch_until(size_t index);
  void launch_outputs(const PartMemory& memory);
  // Copies this part's columns of gather `index` into the gathered value of `target`, on the target's stream.
  void give(size_t index, CudaPart& target) const;

  // After a run that refused an input.
  void clear_refusal();

 private:
  std::byte* at(uint32_t value) const { return values_[value]; }
  const void* weight(uint32_t id) const;
  const int* length(uint32_t id) const { return reinterpret_cast<const int*>(values_[id]); }
  const int* live(const Rows& rows) const { return rows.limited ? length(plan_.live_rows) : nullptr; }
  // For kernels that write the value.
  const int* refusal(const Rows& rows) const;
  RowArgs row_args(const Rows& x, const Rows& y) const;
  AttentionArgs attention_args(const AttentionSpec& spec) const;
  bool read_once(uint32_t value) const;
  bool matches(const HeadsSpec& heads, const AttentionSpec& attention) const;
  bool fuses(const StepSpec& first, const StepSpec& second) const;

  void plan_scratch();
  uint64_t scratch_of(const StepSpec& step) const;
  uint64_t reserve(uint64_t bytes);
  void launch(const LinearSpec& spec);
  void launch(const HeadsSpec& spec);
  void launch(const AttentionSpec& spec);
  DecodeAttentionArgs fused_args(const HeadsSpec& heads, const AttentionSpec& attention) const;
  void launch_fused(const HeadsSpec& heads, const AttentionSpec& attention);
  bool linear_phase(const LinearSpec& spec, decode::LinearPhase& linear) const;
  bool attention_phase(const HeadsSpec& heads, const AttentionSpec& spec, decode::ProgramArgs& args,
                       decode::AttentionPhase& attention) const;
  // Launches the steps from `first` on that make a program; how many those are, 0 where they make none.
  size_t launch_program_from(size_t first, size_t end);
  void launch(const RmsNormSpec& spec);
  void launch(const AddSpec& spec);
  void launch(const SiluMulSpec& spec);
  void launch(const GatherRowSpec& spec);
  void launch(const CopySpec& spec);

  std::shared_ptr<const Graph> graph_;
  std::vector<std::shared_ptr<DeviceMemory>> weights_;
  const int gpu_;
  Plan plan_;
  Stream stream_;
  std::unique_ptr<Blas> blas_;  // null: not found, or no use for it
  DeviceBytes memory_;          // arena, staged inputs, scratch of a step, partial attention, flags
  uint64_t scratch_bytes_ = 0;
  uint64_t step_scratch_ = 0, partials_ = 0, arrived_ = 0, barrier_ = 0, mail_ = 0, codes_ = 0,
           refused_ = 0;          // offsets in memory_
  std::vector<uint64_t> staged_;  // by input port; states: none
  int* const refused_host_;
  std::vector<DeviceBytes> copied_outputs_;  // by port: of outputs that share memory with a state
  std::vector<std::byte*> output_targets_;   // by port
  std::vector<std::byte*> port_inputs_;      // as bound
  std::vector<std::byte*> values_;           // [value id]
};

}  // namespace tcim_lite::cuda
