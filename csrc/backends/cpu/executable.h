// Plans with their memory: what the runtime runs.
//
// If a model is for several devices, they run in turn on the same pool, each up to its next AllGather; then the columns
// are exchanged. All devices are in this process's memory, so the exchange is a copy.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <vector>

#include "backends/backend.h"
#include "backends/cpu/layouts.h"
#include "backends/cpu/plan.h"
#include "graph/plan/plan.h"

namespace tcim_lite::cpu {

// One device's plan.
class CpuPart {
 public:
  CpuPart(Part part, Numerics numerics);

  // Throws Error(Unsupported) unless the first part computes the same rows of what is gathered.
  void check_exchange(const CpuPart& first) const;

  // Takes the memory of a run and checks lengths and inputs. Throws Error(Argument); nothing has been written then.
  void begin(const PartMemory& memory);
  // The steps before gather `index`, or before the end.
  void run_until(size_t index);
  // Throws Error(Argument) when attention met a NaN or an infinity that a live cache row holds.
  void check_caches();
  // Zeroes the rows of outputs that are not live, and delivers those that were staged.
  void finish(const PartMemory& memory);

  // Copies this part's columns of gather `index` into the gathered value of `target`, another part or this one.
  void give(size_t index, CpuPart& target) const;

  size_t num_gathers() const noexcept { return plan_.gathers.size(); }
  uint64_t scratch_bytes() const noexcept;

  void time_steps(bool on);
  // Adds this part's to `times`.
  void add_step_times(std::vector<StepTime>& times) const;
  void add_last_steps(std::multimap<int64_t, StepSpan>& by_begin) const;

 private:
  void make_steps();
  RunContext context();
  void bind(std::span<std::byte* const> inputs, std::span<std::byte* const> outputs);
  void check_finite(const RunContext& context) const;
  // Other than the one that it may be written over.
  bool overlaps_an_input(const std::byte* begin, const Plan::OutputPort& output,
                         std::span<std::byte* const> inputs) const;
  int64_t length(uint32_t value) const { return *reinterpret_cast<const int32_t*>(values_[value]); }

  std::shared_ptr<const Graph> graph_;
  std::vector<WeightBytes> weights_;
  Layouts layouts_;  // set while plan_ is built, so it comes before it
  Plan plan_;
  std::vector<std::unique_ptr<Step>> steps_;
  std::vector<StepName> step_names_;
  std::vector<double> step_seconds_;                   // empty unless steps are timed
  std::vector<uint64_t> step_begin_ns_, step_end_ns_;  // of the last run; as step_seconds_
  int64_t shared_bytes_ = 0, member_bytes_ = 0;
  AlignedBuffer arena_, shared_scratch_;
  std::vector<AlignedBuffer> member_scratch_;
  std::vector<AlignedBuffer> staged_outputs_;  // used when an output is the memory of an input
  std::vector<std::byte*> values_;             // [value id]
  std::vector<uint32_t> port_values_;          // value ids whose storage is a port
  std::vector<std::byte*> output_targets_;     // where the steps write each output
  int64_t live_rows_ = INT64_MAX;              // of this run
  std::atomic<bool> odd_attention_ = false;
  bool warned_context_ = false;
};

class CpuExecutable final : public Executable {
 public:
  CpuExecutable(std::vector<Part> parts, Numerics numerics);

  void run(std::span<const PartMemory> memory) override;
  uint64_t scratch_bytes(size_t rank) const noexcept override { return parts_[rank]->scratch_bytes(); }
  void time_steps(bool on) override;
  std::vector<StepTime> step_times() const override;
  std::vector<StepSpan> last_steps() const override;

 private:
  std::vector<std::unique_ptr<CpuPart>> parts_;
};

}  // namespace tcim_lite::cpu
