// Makes a program of a plan's steps (program.h). The phases of each kind of step are in program_phases.cpp and
// program_experts.cpp.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "backends/cuda/decode/expert_steps.h"
#include "backends/cuda/decode/handovers.h"
#include "backends/cuda/decode/program.h"

namespace tcim_lite::cuda::decode {

// Adds steps until one does not fit. Each add() leaves the program as it was where it returns false.
class ProgramBuilder {
 public:
  ProgramBuilder(const Plan& plan, int multiprocessors);

  std::optional<Program> build(size_t first);

 private:
  size_t add_next();  // how many steps it added
  // program_phases.cpp specialises it for the steps that have phases, and calls it.
  template <typename Spec>
  bool add(const Spec&) {
    return false;
  }
  bool add(const ExpertSteps& steps);

  bool add_elementwise(int op, Elem elem, const Rows& a, const Rows& y);
  // x: null if it is not the plan's. The caller says where y is.
  LinearPhase& next_linear(Phase::Kind kind, const LinearSpec& spec, const std::optional<Rows>& x);
  int leave_squares(const Rows& x);
  bool leave_codes(const Rows& x);
  void add_residual(LinearPhase& linear, const Rows& residual);
  void add_norm(LinearPhase& linear, const RmsNormSpec& norm);

  bool has_the_same_shape(const HeadsAttentionSpec& spec) const;
  void share(const HeadsAttentionSpec& spec);

  // Whether a phase multiplies by such weights, its rows apart.
  bool takes(const LinearSpec& spec) const;
  bool is_the_format(const LinearSpec& spec) const {
    return program_.format_ == WeightFormat::Dense || spec.format == program_.format_;
  }
  bool takes_rows(const Rows& x) {
    if (args_.count == 0) args_.rows = int(x.rows);
    return x.rows == args_.rows && x.rows <= kMostRows;
  }
  // In pieces of 16 bytes.
  bool is_read_by_pieces(const Rows& x) const { return x.stride % 8 == 0 && plan_.storage[x.value].offset % 16 == 0; }
  Range range_of(const Rows& x) const {
    const Plan::Storage& storage = plan_.storage[x.value];
    return {uint32_t(storage.place) + 4 * storage.port, storage.offset, x.cols};
  }

  Phase& next(Phase::Kind kind) {
    Phase& phase = args_.phases[args_.count++];
    phase.kind = kind;
    flows_.emplace_back();
    return phase;
  }
  // What the last phase makes, if it is an output.
  void keep_output(const Rows& y) {
    args_.phases[args_.count - 1].keeps = plan_.storage[y.value].place == Plan::Place::Output;
  }

  template <typename T>
  void refer(T*& pointer, uint32_t value, bool aligned = false) {
    pointer = nullptr;
    if (value != kNoValue) program_.operands_.push_back({&pointer, value, aligned});
  }
  uint64_t reserve(uint64_t bytes) {
    const uint64_t offset = program_.scratch_bytes_;
    program_.scratch_bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return offset;
  }
  template <typename T>
  void own(T*& pointer, uint64_t bytes) {
    program_.own_.push_back({&pointer, reserve(bytes)});
  }
  // One place for all phases.
  template <typename T>
  void own_at(T*& pointer, std::optional<uint64_t>& place, uint64_t bytes) {
    if (!place) place = reserve(bytes);
    program_.own_.push_back({&pointer, *place});
  }
  template <typename T>
  void own_codes(T*& pointer) {
    own_at(pointer, codes_, kMostCodesBytes);
  }

  static constexpr uint64_t kAlignment = 256;  // of the program's own memory

  const Plan& plan_;
  const int multiprocessors_;
  const bool has_experts_;
  Program program_;
  ProgramArgs& args_ = *program_.args_;
  std::vector<Flow> flows_;  // by phase
  size_t caches_ = 0;
  const HeadsAttentionSpec* shared_ = nullptr;  // the first attention
  std::optional<uint64_t> codes_, squares_, logits_, product_;
};

}  // namespace tcim_lite::cuda::decode
