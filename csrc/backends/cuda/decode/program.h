// What of a plan decodes in one launch (docs/cuda-decode.md): phases, what they hand on to each other and the memory
// that they need, all known when a model is loaded. A launch only fills in where values lie.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backends/cuda/decode/args.h"
#include "graph/plan/plan.h"

namespace tcim_lite::cuda::decode {

class Program {
 public:
  // The longest that begins with step `first`, for a GPU of so many multiprocessors; nothing where that has too few
  // phases to be worth a launch that nothing overlaps.
  static std::optional<Program> plan(const Plan& plan, size_t first, int multiprocessors);

  size_t first_step() const { return first_; }
  size_t end_step() const { return end_; }
  WeightFormat format() const { return format_; }
  // Memory of the program's own, zeros before its first launch.
  uint64_t scratch_bytes() const { return scratch_bytes_; }

  // For launches over values that lie at `values`, by id, weights too. False where one of them is not aligned as the
  // kernel reads it: then the steps are launched one by one.
  bool bind(std::span<std::byte* const> values, std::byte* scratch, const int* refused, int* odd);
  // As bound.
  const ProgramArgs& args() const { return *args_; }

 private:
  friend class ProgramBuilder;

  // A pointer in the arguments, and the value whose address it is.
  struct Operand {
    void* pointer;
    uint32_t value;
    bool aligned;  // to 16 bytes
  };
  struct OwnMemory {
    void* pointer;
    uint64_t offset;  // in the scratch
  };

  size_t first_ = 0, end_ = 0;
  WeightFormat format_ = WeightFormat::Dense;
  uint64_t scratch_bytes_ = 0;
  std::unique_ptr<ProgramArgs> args_ = std::make_unique<ProgramArgs>();
  std::vector<Operand> operands_;
  std::vector<OwnMemory> own_;
};

}  // namespace tcim_lite::cuda::decode
