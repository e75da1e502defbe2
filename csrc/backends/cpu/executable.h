// A plan with its memory: what the runtime runs.
#pragma once

#include <memory>
#include <vector>

#include "backends/backend.h"
#include "backends/cpu/plan_builder.h"

namespace tcim_lite::cpu {

class CpuExecutable final : public Executable {
 public:
  CpuExecutable(std::shared_ptr<const Graph> graph, std::vector<WeightBytes> weights, bool float_math);

  void run(std::span<std::byte* const> inputs, std::span<std::byte* const> outputs) override;
  uint64_t scratch_bytes() const noexcept override;

 private:
  void bind(std::span<std::byte* const> inputs, std::span<std::byte* const> outputs);
  void check_lengths();
  void check_finite(const RunContext& context) const;
  bool overlaps_an_input(const std::byte* begin, int64_t bytes, std::span<std::byte* const> inputs) const;
  int64_t length(uint32_t value) const { return *reinterpret_cast<const int32_t*>(values_[value]); }

  std::shared_ptr<const Graph> graph_;
  std::vector<WeightBytes> weights_;
  Plan plan_;
  AlignedBuffer arena_, shared_scratch_;
  std::vector<AlignedBuffer> member_scratch_;
  std::vector<AlignedBuffer> staged_outputs_;  // used when an output is the memory of an input
  std::vector<std::byte*> values_;             // [value id]
  std::vector<uint32_t> port_values_;          // value ids whose storage is a port
  std::vector<std::byte*> output_targets_;     // where the steps write each output
  bool warned_context_ = false;
};

}  // namespace tcim_lite::cpu
