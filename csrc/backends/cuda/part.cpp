#include "backends/cuda/part.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "backends/cuda/decode/kernel.h"
#include "backends/cuda/kernels/kernels.h"
#include "base/env.h"
#include "base/error.h"
#include "graph/plan/step_name.h"

namespace tcim_lite::cuda {
namespace {

void refuse_hidden_exponents(const Plan& plan, const std::string& graph) {
  for (const StepSpec& step : plan.steps) {
    const auto* experts = std::get_if<MoELinearSpec>(&step);
    const auto* linear = experts != nullptr ? &experts->linear : std::get_if<LinearSpec>(&step);
    if (linear != nullptr && linear->hidden_exponent && linear->quantized())
      fail(ErrorCode::Unsupported, "'", graph, "' rounds activations with hidden exponents (--activations or ",
           "TCIM_LITE_NUMERICS), which the CUDA backend does not compute; load it on the CPU (TCIM_LITE_DEVICE=cpu), "
           "or ",
           "do without");
  }
}

// A new state of CausalConv is written while other blocks still read the old one, so it is not written over that.
Plan plan_here(const Graph& graph, Numerics numerics) {
  Plan plan = build_plan(graph, numerics, Joins::Turned);
  for (const StepSpec& step : plan.steps) {
    const auto* conv = std::get_if<CausalConvSpec>(&step);
    if (conv == nullptr) continue;
    for (const uint32_t id : conv->new_states) {
      const Plan::Storage& storage = plan.storage[id];
      if (storage.place == Plan::Place::Output) plan.outputs[storage.port].over = kNoValue;
    }
  }
  return plan;
}

// Kernels first: which of them run here decides how much scratch the steps ask for.
Stream stream_after_kernels() {
  prepare_kernels(!env_is("TCIM_LITE_CUDA_WGMMA", "off", "on"));
  return make_stream();
}

}  // namespace

CudaPart::CudaPart(Part part, Numerics numerics, int gpu, HostFlags* flags)
    : graph_(std::move(part.graph)),
      gpu_(gpu),
      plan_(plan_here(*graph_, numerics)),
      stream_(stream_after_kernels()),
      memory_(*graph_, plan_, std::move(part.placed), flags),
      steps_(*graph_, plan_, memory_, stream_.get()) {
  refuse_hidden_exponents(plan_, graph_->name);
  if (!env_is("TCIM_LITE_CUDA_ONE_LAUNCH", "off", "on")) plan_programs();
  memory_.allocate();
  steps_.prepare();
}

void CudaPart::plan_programs() {
  if (!decode::runs_here() || num_gathers() > 0) return;
  for (size_t step = 0; step < plan_.steps.size();) {
    auto program = decode::Program::plan(plan_, step, multiprocessors());
    if (!program) {
      ++step;
      continue;
    }
    step = program->end_step();
    const uint64_t scratch = memory_.reserve(program->scratch_bytes());
    programs_.push_back({std::move(*program), scratch});
  }
}

void CudaPart::check_exchange(const CudaPart& first) const {
  for (size_t index = 0; index < num_gathers(); ++index) {
    if (plan_.gathers[index].own.limited == first.plan_.gathers[index].own.limited) continue;
    fail(ErrorCode::Unsupported, "AllGather ", index, " of '", graph_->name,
         "': one device computes all rows, another only the live ones; the CUDA backend exchanges equal rows");
  }
}

void CudaPart::launch_inputs() {
  memory_.launch_inputs(stream());
  if (timer_) timer_->begin(stream());
}

void CudaPart::launch_until(size_t index) {
  const size_t end = index == num_gathers() ? plan_.steps.size() : plan_.gathers[index].next_step;
  for (size_t step = index == 0 ? 0 : plan_.gathers[index - 1].next_step; step < end;) {
    if (const decode::Program* program = bound_program(step)) {
      decode::launch(program->format(), program->args(), stream());
      step = program->end_step();
      if (timer_) timer_->mark(stream(), {"one launch of many steps", ""});
    } else {
      steps_.launch(plan_.steps[step]);
      if (timer_) timer_->mark(stream(), name_of(plan_.steps[step]));
      ++step;
    }
  }
}

void CudaPart::time_steps(bool on) {
  timer_.reset();
  if (on) timer_.emplace();
}

void CudaPart::add_step_times(std::vector<StepTime>& times) const {
  if (timer_) timer_->add(times);
}

const decode::Program* CudaPart::bound_program(size_t step) {
  for (Placed& each : programs_) {
    if (each.program.first_step() != step) continue;
    const bool fits =
        each.program.bind(memory_.values(), memory_.scratch(each.scratch), memory_.refused(), memory_.odd_attention());
    return fits ? &each.program : nullptr;
  }
  return nullptr;
}

void CudaPart::give(size_t index, CudaPart& target) const {
  const Plan::Gather& from = plan_.gathers[index];
  const Plan::Gather& to = target.plan_.gathers[index];
  const int64_t bytes = elem_bytes(from.elem), parts = from.parts;  // of a dense row, if there are any
  const void* const own = memory_.at(from.own.value);
  std::byte* const columns = target.memory_.at(to.whole.value) + from.offset * bytes;
  const int64_t rows = from.own.rows * parts, cols = from.own.cols / parts;
  const int64_t own_stride = from.own.stride / parts, stride = to.whole.stride / parts;
  if (reads(target.gpu(), gpu()))
    return launch_copy(from.elem, from.elem, {own, columns, int(rows), int(cols), own_stride, stride, nullptr, nullptr},
                       target.stream());
  CUDA_CHECK(cudaMemcpy2DAsync(columns, size_t(stride * bytes), own, size_t(own_stride * bytes), size_t(cols * bytes),
                               size_t(rows), cudaMemcpyDefault, target.stream()));
}

}  // namespace tcim_lite::cuda
