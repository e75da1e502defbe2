#include "backends/cuda/decode/program.h"

#include <algorithm>
#include <cstring>
#include <variant>

#include "backends/cuda/decode/program_builder.h"

namespace tcim_lite::cuda::decode {
namespace {

constexpr int kFewestPhases = 3;
constexpr int kMostPhasesOfAStep = 4;  // or of the steps that go together

template <typename Spec>
bool has(const Plan& plan) {
  return std::any_of(plan.steps.begin(), plan.steps.end(),
                     [](const StepSpec& step) { return std::holds_alternative<Spec>(step); });
}

}  // namespace

ProgramBuilder::ProgramBuilder(const Plan& plan, int multiprocessors)
    : plan_(plan), multiprocessors_(multiprocessors), has_experts_(has<MoERouteSpec>(plan)) {}

std::optional<Program> ProgramBuilder::build(size_t first) {
  program_.first_ = program_.end_ = first;
  while (program_.end_ < plan_.steps.size() && args_.count + kMostPhasesOfAStep <= kMostPhases) {
    const size_t added = add_next();
    if (added == 0) break;
    program_.end_ += added;
  }
  if (args_.count < kFewestPhases || program_.format_ == WeightFormat::Dense) return std::nullopt;
  // Between launches of attention, one of experts and what is around them costs more than it saves: gpt-oss-20b 2.04 ms
  // instead of 1.74.
  if (has_experts_ && args_.slots == 0 && has<HeadsAttentionSpec>(plan_)) return std::nullopt;
  plan_handovers(args_, flows_);
  own(args_.barrier, 2 * sizeof(unsigned));
  args_.experts = args_.rows == 1 && has_experts_;
  args_.looks_ahead = most_inputs(args_) >= kFarInputs;
  if (args_.rows == 1) own(args_.mail, kMailBytes);
  if (args_.slots > 0) {
    own(args_.arrived, uint64_t(args_.rows) * uint64_t(args_.kv_heads) * 4);
    own(args_.partial, uint64_t(multiprocessors_) * uint64_t(args_.heads_per_kv) * kLeft * 4);
  }
  return std::move(program_);
}

std::optional<Program> Program::plan(const Plan& plan, size_t first, int multiprocessors) {
  return ProgramBuilder(plan, multiprocessors).build(first);
}

bool Program::bind(std::span<std::byte* const> values, std::byte* scratch, const int* refused, int* odd) {
  for (const Operand& operand : operands_) {
    std::byte* const address = values[operand.value];
    if (operand.aligned && reinterpret_cast<uintptr_t>(address) % 16 != 0) return false;
    std::memcpy(operand.pointer, &address, sizeof(address));
  }
  for (const OwnMemory& own : own_) {
    std::byte* const address = scratch + own.offset;
    std::memcpy(own.pointer, &address, sizeof(address));
  }
  args_->refused = refused;
  args_->odd = odd;
  return true;
}

}  // namespace tcim_lite::cuda::decode
