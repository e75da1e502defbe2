// One device's share of a model: its plan, its memory, and its launches. Steps that a decode program covers are one
// launch; other steps have one launch each.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "backends/backend.h"
#include "backends/cuda/decode/program.h"
#include "backends/cuda/handles.h"
#include "backends/cuda/memory.h"
#include "backends/cuda/step_timer.h"
#include "backends/cuda/steps.h"
#include "graph/plan/plan.h"

namespace tcim_lite::cuda {

class CudaPart {
 public:
  // On the current GPU, which is `gpu`. `flags` is pinned and outlives the part.
  CudaPart(Part part, Numerics numerics, int gpu, HostFlags* flags);

  // Throws Error(Unsupported) unless the first part computes the same rows of what is gathered.
  void check_exchange(const CudaPart& first) const;

  int gpu() const noexcept { return gpu_; }
  cudaStream_t stream() const noexcept { return stream_.get(); }
  size_t num_gathers() const noexcept { return plan_.gathers.size(); }
  uint64_t scratch_bytes() const noexcept { return memory_.bytes(); }
  const Plan& plan() const noexcept { return plan_; }
  const Graph& graph() const noexcept { return *graph_; }
  // The input port of a length.
  size_t port_of(uint32_t length) const { return memory_.port_of(length); }

  // Addresses of the next launches. Throws Error(Argument) for memory that no GPU reaches.
  void bind(const PartMemory& memory) { memory_.bind(memory); }
  // Launch on stream(): the inputs, the steps before gather `index` or the end, and what completes the outputs.
  void launch_inputs();
  void launch_until(size_t index);
  void launch_outputs(const PartMemory& memory) { memory_.launch_outputs(memory, stream()); }
  // Copies this part's columns of gather `index` into the gathered value of `target`, on the target's stream.
  void give(size_t index, CudaPart& target) const;

  // Whether launches from now on are timed, step by step.
  void time_steps(bool on);
  // After a run: adds its times.
  void add_step_times(std::vector<StepTime>& times) const;

  // After a run that refused an input.
  void clear_refusal() { memory_.clear_refusal(stream()); }

 private:
  struct Placed {
    decode::Program program;
    uint64_t scratch;  // in the memory
  };

  void plan_programs();
  // The program that begins with `step`, with the addresses as bound; null where none does.
  const decode::Program* bound_program(size_t step);

  const std::shared_ptr<const Graph> graph_;
  const int gpu_;
  const Plan plan_;
  const Stream stream_;
  CudaMemory memory_;
  StepLauncher steps_;
  std::vector<Placed> programs_;
  std::optional<StepTimer> timer_;
};

}  // namespace tcim_lite::cuda
