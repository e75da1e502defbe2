// The part of a plan that decodes in one launch (docs/cuda-decode.md): phases, their hand-overs and the memory they
// need. All of it is known when a model is loaded; a launch only fills in the addresses of values.
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
  // The longest program that begins with step `first`, for a GPU with so many multiprocessors. Nothing if it would have
  // too few phases: no other launch overlaps with that of a program.
  static std::optional<Program> plan(const Plan& plan, size_t first, int multiprocessors);

  size_t first_step() const { return first_; }
  size_t end_step() const { return end_; }
  WeightFormat format() const { return format_; }
  // Memory of the program's own, zeros before its first launch.
  uint64_t scratch_bytes() const { return scratch_bytes_; }

  // Sets the addresses of the next launches; `values` are by id, weights included. False if a value is not aligned as
  // the kernel reads it; then the steps must be launched one by one.
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
