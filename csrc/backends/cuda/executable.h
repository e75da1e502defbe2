// A model on its GPUs. A run is one launch of a CUDA graph, which is captured when the memory of the inputs and outputs
// is new and replayed while it stays; lengths are read on the device.
#pragma once

#include <list>
#include <memory>
#include <span>
#include <vector>

#include "backends/backend.h"
#include "backends/cuda/part.h"

namespace tcim_lite::cuda {

class CudaExecutable final : public Executable {
 public:
  CudaExecutable(std::vector<Part> parts, Numerics numerics, int gpu_count);
  ~CudaExecutable() override;

  void run(std::span<const PartMemory> memory) override;
  uint64_t scratch_bytes(size_t rank) const noexcept override { return parts_[rank]->scratch_bytes(); }
  void time_steps(bool on) override;
  std::vector<StepTime> step_times() const override { return step_times_; }

 private:
  struct Bound;

  Bound& bound_for(std::span<const PartMemory> memory);
  void capture(Bound& bound);
  void record(const Bound& bound);
  void meet();
  void check_lengths(const Bound& bound);
  // Throws what the kernels told of the run, and makes the next one possible.
  void take_flags(const Bound& bound);
  void raise_refusal(uint32_t port);
  void check_caches(const Bound& bound);

  PinnedBytes flags_;  // HostFlags
  std::vector<std::unique_ptr<CudaPart>> parts_;
  std::vector<Event> events_;  // by rank
  std::list<Bound> bounds_;    // the latest first
  bool warned_context_ = false;
  bool times_steps_ = false;
  std::vector<StepTime> step_times_;  // of the runs since time_steps()
};

}  // namespace tcim_lite::cuda
