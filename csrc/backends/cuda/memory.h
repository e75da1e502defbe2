// Where the values of a part are on its GPU: an arena, copies of its inputs, scratch, and what is bound from outside.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backends/backend.h"
#include "backends/cuda/handles.h"
#include "graph/plan/plan.h"

namespace tcim_lite::cuda {

// What the kernels of a run tell the host.
struct HostFlags {
  int refused;        // the port of an input that holds a NaN or an infinity, plus 1
  int odd_attention;  // 1: a result of attention is NaN or infinite
};

class CudaMemory {
 public:
  // `graph`, `plan` and `flags`, which is pinned, outlive the memory.
  CudaMemory(const Graph& graph, const Plan& plan, std::vector<std::shared_ptr<DeviceMemory>> weights,
             HostFlags* flags);

  // More scratch, zeros at first; returns where it is for scratch(). Only before allocate().
  uint64_t reserve(uint64_t bytes);
  void allocate();
  uint64_t bytes() const noexcept { return bytes_; }
  std::byte* scratch(uint64_t offset) const { return memory_.get() + offset; }

  // Addresses of the next launches. Throws Error(Argument) for memory that no GPU reaches.
  void bind(const PartMemory& memory);
  // Copies inputs to where steps read them, and looks for a NaN or an infinity.
  void launch_inputs(cudaStream_t stream);
  // Zeroes rows of outputs that are not live, and delivers what was not written in place.
  void launch_outputs(const PartMemory& memory, cudaStream_t stream);
  // After a run that refused an input.
  void clear_refusal(cudaStream_t stream);

  // By value id, weights included; null if the value has no memory.
  std::span<std::byte* const> values() const { return values_; }
  std::byte* at(uint32_t value) const { return values_[value]; }
  const void* weight(uint32_t id) const { return id == kNoValue ? nullptr : values_[id]; }
  // Null where it is not given.
  const void* operand(const Operand& operand) const {
    if (!operand.given()) return nullptr;
    return operand.weight ? weight(operand.value) : at(operand.value);
  }
  const int* length(uint32_t id) const { return reinterpret_cast<const int*>(values_[id]); }
  // Null if all rows are live.
  const int* live(const Rows& rows) const { return rows.limited ? length(plan_.live_rows) : nullptr; }
  // Not 0 once an input was refused.
  const int* refused() const { return reinterpret_cast<const int*>(scratch(refused_)); }
  // The same for kernels that write the value; null where it does not outlive the run.
  const int* refusal(uint32_t value) const;
  const int* refusal(const Rows& rows) const { return refusal(rows.value); }

  int* odd_attention() const { return &flags_->odd_attention; }

  // The input port of a length.
  size_t port_of(uint32_t length) const;

 private:
  // Rows that are not live may hold anything; kernels that read them all the same read a copy's.
  bool reads_all_rows(size_t port) const;

  const Graph& graph_;
  const Plan& plan_;
  const std::vector<std::shared_ptr<DeviceMemory>> weights_;
  HostFlags* const flags_;
  DeviceBytes memory_;  // arena, copied inputs, scratch
  uint64_t bytes_ = 0, refused_ = 0;
  std::vector<uint64_t> staged_;             // by input port: where its copy has its place; states: none
  std::vector<std::byte*> port_inputs_;      // as bound
  std::vector<std::byte*> read_from_;        // by input port: where it lies, or its copy
  std::vector<DeviceBytes> copied_outputs_;  // by port: of outputs over an input that steps read where it lies
  std::vector<std::byte*> output_targets_;   // by port
  std::vector<std::byte*> values_;           // by value id
};

}  // namespace tcim_lite::cuda
