#include "backends/cpu/executable.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <utility>
#include <variant>

#include "backends/cpu/dispatch.h"
#include "backends/cpu/step_for.h"
#include "base/error.h"
#include "graph/plan/cache_rows.h"
#include "graph/plan/lengths.h"

namespace tcim_lite::cpu {
namespace {

constexpr int64_t kCheckedElements = 1 << 15;  // of an input that a task looks through for NaN and infinity

uint64_t steady_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return uint64_t(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

}  // namespace

CpuPart::CpuPart(Part part, Numerics numerics)
    : graph_(std::move(part.graph)),
      weights_(std::move(part.weights)),
      plan_(build_plan(*graph_, numerics, Joins::Products, [this](const Plan& plan) {
        layouts_ = Layouts(*graph_, plan);
        return layouts_.forms();
      })) {
  make_steps();
  kernels();  // a TCIM_LITE_ISA that this machine lacks is an error of the load, not of the first run
  arena_ = AlignedBuffer(plan_.arena_bytes);
  shared_scratch_ = AlignedBuffer(shared_bytes_);
  for (int member = 0; member < ThreadPool::instance().size(); ++member) {
    member_scratch_.emplace_back(member_bytes_);
  }
  staged_outputs_.resize(plan_.outputs.size());
  output_targets_.resize(plan_.outputs.size());
  values_.resize(plan_.storage.size());
  for (uint32_t id = 0; id < plan_.storage.size(); ++id) {
    const Plan::Storage& storage = plan_.storage[id];
    if (storage.place == Plan::Place::Arena) values_[id] = arena_.data() + storage.offset;
    if (storage.place == Plan::Place::Input || storage.place == Plan::Place::Output) port_values_.push_back(id);
  }
}

void CpuPart::make_steps() {
  const WeightFinder finder(*graph_, weights_, layouts_);
  for (StepSpec& spec : plan_.steps) {
    step_names_.push_back(name_of(spec));
    std::visit(
        [&](auto& known) { steps_.push_back(std::make_unique<StepOf<decltype(known)>>(std::move(known), finder)); },
        spec);
    shared_bytes_ = std::max(shared_bytes_, steps_.back()->shared_bytes());
    member_bytes_ = std::max(member_bytes_, steps_.back()->member_bytes());
  }
  plan_.steps.clear();
}

uint64_t CpuPart::scratch_bytes() const noexcept {
  return plan_.arena_bytes + shared_bytes_ + member_bytes_ * member_scratch_.size();
}

RunContext CpuPart::context() {
  return {kernels(),       ThreadPool::instance(), values_.data(), live_rows_, shared_scratch_.data(),
          member_scratch_, odd_attention_};
}

void CpuPart::check_exchange(const CpuPart& first) const {
  for (size_t index = 0; index < num_gathers(); ++index) {
    const Rows &own = plan_.gathers[index].own, &other = first.plan_.gathers[index].own;
    if (own.limited == other.limited) continue;
    fail(ErrorCode::Unsupported, "AllGather ", index, " of '", graph_->name,
         "': one device computes all rows, another ", "only the live ones; the CPU backend exchanges equal rows");
  }
}

void CpuPart::begin(const PartMemory& memory) {
  bind(memory.inputs, memory.outputs);
  const auto integers = [this](uint32_t id, int64_t) { return reinterpret_cast<const int32_t*>(values_[id]); };
  check_lengths(plan_, *graph_, integers, warned_context_);
  if (plan_.live_rows != kNoValue) live_rows_ = length(plan_.live_rows);
  check_finite(context());
  odd_attention_ = false;
}

void CpuPart::run_until(size_t index) {
  const RunContext context = this->context();
  const size_t begin = index == 0 ? 0 : plan_.gathers[index - 1].next_step;
  const size_t end = index == num_gathers() ? steps_.size() : plan_.gathers[index].next_step;
  if (step_seconds_.empty()) {
    for (size_t step = begin; step < end; ++step) steps_[step]->run(context);
    return;
  }
  for (size_t step = begin; step < end; ++step) {
    step_begin_ns_[step] = steady_ns();
    steps_[step]->run(context);
    step_end_ns_[step] = steady_ns();
    step_seconds_[step] += 1e-9 * double(step_end_ns_[step] - step_begin_ns_[step]);
  }
}

void CpuPart::time_steps(bool on) {
  step_seconds_.assign(on ? steps_.size() : 0, 0.0);
  step_begin_ns_.assign(step_seconds_.size(), 0);
  step_end_ns_.assign(step_seconds_.size(), 0);
}

void CpuPart::add_last_steps(std::multimap<int64_t, StepSpan>& by_begin) const {
  for (size_t step = 0; step < step_seconds_.size(); ++step) {
    const uint32_t value = plan_.step_values[step];
    const std::string name = value < graph_->values.size() ? graph_->values[value].name : "";
    by_begin.emplace(step_begin_ns_[step], StepSpan{step_names_[step], name, step_begin_ns_[step], step_end_ns_[step]});
  }
}

void CpuPart::add_step_times(std::vector<StepTime>& times) const {
  for (size_t step = 0; step < step_seconds_.size(); ++step) {
    const StepName& name = step_names_[step];
    auto found = std::find_if(times.begin(), times.end(), [&](const StepTime& time) { return time.name == name; });
    if (found == times.end()) found = times.insert(times.end(), {name, 0.0});
    found->seconds += step_seconds_[step];
  }
}

void CpuPart::give(size_t index, CpuPart& target) const {
  const Plan::Gather& from = plan_.gathers[index];
  const Plan::Gather& to = target.plan_.gathers[index];
  const int64_t bytes = elem_bytes(from.elem);
  const RunContext context = target.context();
  for_rows(context, context.rows_of(to.whole), [&](int64_t begin, int64_t end, int) {
    const int64_t own = from.own.cols / from.parts, whole = to.whole.cols / from.parts;
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t part = 0; part < from.parts; ++part) {
        std::memcpy(target.values_[to.whole.value] + (row * to.whole.stride + part * whole + from.offset) * bytes,
                    values_[from.own.value] + (row * from.own.stride + part * own) * bytes, size_t(own * bytes));
      }
    }
  });
}

void CpuPart::check_caches() {
  if (!odd_attention_) return;
  check_cache_rows(
      plan_, *graph_, [this](uint32_t id) { return length(id); },
      [this](const Plan::Cache& cache, int64_t offset, int64_t) { return values_[cache.value] + offset; });
}

void CpuPart::finish(const PartMemory& memory) {
  const RunContext context = this->context();
  for (size_t port = 0; port < memory.outputs.size(); ++port) {
    const Plan::OutputPort& output = plan_.outputs[port];
    const int64_t written = context.rows_of(output.rows) * output.row_bytes;
    std::memset(output_targets_[port] + written, 0, output.bytes - written);
    if (output_targets_[port] != memory.outputs[port])
      std::memcpy(memory.outputs[port], output_targets_[port], output.bytes);
  }
}

void CpuPart::bind(std::span<std::byte* const> inputs, std::span<std::byte* const> outputs) {
  for (size_t port = 0; port < outputs.size(); ++port) {
    const Plan::OutputPort& output = plan_.outputs[port];
    output_targets_[port] = outputs[port];
    if (!overlaps_an_input(outputs[port], output, inputs)) continue;
    if (staged_outputs_[port].data() == nullptr) staged_outputs_[port] = AlignedBuffer(output.bytes);
    output_targets_[port] = staged_outputs_[port].data();
  }
  for (uint32_t id : port_values_) {
    const Plan::Storage& storage = plan_.storage[id];
    std::byte* base = storage.place == Plan::Place::Input ? inputs[storage.port] : output_targets_[storage.port];
    values_[id] = base + storage.offset;
  }
}

bool CpuPart::overlaps_an_input(const std::byte* begin, const Plan::OutputPort& output,
                                std::span<std::byte* const> inputs) const {
  for (size_t port = 0; port < inputs.size(); ++port) {
    if (port == output.over && inputs[port] == begin) continue;
    if (begin < inputs[port] + plan_.input_bytes[port] && inputs[port] < begin + output.bytes) return true;
  }
  return false;
}

void CpuPart::check_finite(const RunContext& context) const {
  for (const Plan::FloatInput& input : plan_.float_inputs) {
    const std::byte* elements = values_[graph_->inputs[input.port]];
    const int64_t count = context.rows_of(input.rows) * input.rows.cols;
    std::atomic<bool> are_finite = true;
    context.pool.parallel_for((count + kCheckedElements - 1) / kCheckedElements, [&](int64_t index, int) {
      const int64_t begin = index * kCheckedElements, some = std::min(count - begin, kCheckedElements);
      if (!context.kernels.all_finite[input.elem]({elements + begin * elem_bytes(input.elem), 1, some, some}))
        are_finite.store(false, std::memory_order_relaxed);
    });
    if (!are_finite) refuse_input(*graph_, input);
  }
}

CpuExecutable::CpuExecutable(std::vector<Part> parts, Numerics numerics) {
  for (Part& part : parts) {
    parts_.push_back(std::make_unique<CpuPart>(std::move(part), numerics));
    parts_.back()->check_exchange(*parts_.front());
  }
}

void CpuExecutable::run(std::span<const PartMemory> memory) {
  for (size_t rank = 0; rank < parts_.size(); ++rank) parts_[rank]->begin(memory[rank]);
  for (size_t gather = 0; gather < parts_.front()->num_gathers(); ++gather) {
    for (const auto& part : parts_) part->run_until(gather);
    for (const auto& from : parts_) {
      for (const auto& to : parts_) from->give(gather, *to);
    }
  }
  for (size_t rank = 0; rank < parts_.size(); ++rank) {
    parts_[rank]->run_until(parts_[rank]->num_gathers());
    parts_[rank]->check_caches();
    parts_[rank]->finish(memory[rank]);
  }
}

std::vector<StepSpan> CpuExecutable::last_steps() const {
  // std::stable_sort of such large elements would take a sixth of the compiler's time for all of cpu/.
  std::multimap<int64_t, StepSpan> by_begin;
  for (const auto& part : parts_) part->add_last_steps(by_begin);
  std::vector<StepSpan> steps;
  for (auto& [begin, step] : by_begin) steps.push_back(std::move(step));
  return steps;
}

void CpuExecutable::time_steps(bool on) {
  for (const auto& part : parts_) part->time_steps(on);
}

std::vector<StepTime> CpuExecutable::step_times() const {
  std::vector<StepTime> times;
  for (const auto& part : parts_) part->add_step_times(times);
  return times;
}

}  // namespace tcim_lite::cpu
