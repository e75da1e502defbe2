#include "backends/cuda/part.h"

#include <algorithm>
#include <variant>

#include "base/env.h"
#include "base/error.h"

namespace tcim_lite::cuda {
namespace {

constexpr uint64_t kAlignment = 256;
constexpr size_t kNoBytes = SIZE_MAX;

// States stay where they are bound; other inputs are copied before the run reads them.
bool is_staged(const Value& value) { return value.kind == ValueKind::Input; }

}  // namespace

CudaPart::CudaPart(Part part, bool float_math, int gpu, int* refused_host)
    : graph_(std::move(part.graph)),
      weights_(std::move(part.placed)),
      gpu_(gpu),
      plan_(build_plan(*graph_, float_math)),
      refused_host_(refused_host) {
  const UseGpu use(gpu_);
  prepare_kernels(env_text("TCIM_LITE_CUDA_WGMMA") != "off");
  stream_ = make_stream();
  plan_scratch();
  memory_ = device_bytes(scratch_bytes_);
  CUDA_CHECK(cudaMemset(memory_.get(), 0, scratch_bytes_));
  values_.resize(plan_.storage.size());
  copied_outputs_.resize(plan_.outputs.size());
  output_targets_.resize(plan_.outputs.size());
}

uint64_t CudaPart::reserve(uint64_t bytes) {
  const uint64_t offset = scratch_bytes_;
  scratch_bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return offset;
}

void CudaPart::plan_scratch() {
  reserve(uint64_t(plan_.arena_bytes));
  for (size_t port = 0; port < graph_->inputs.size(); ++port) {
    const bool staged = is_staged(graph_->values[graph_->inputs[port]]);
    staged_.push_back(staged ? reserve(uint64_t(plan_.input_bytes[port])) : kNoBytes);
  }
  uint64_t most = 0;
  for (const StepSpec& step : plan_.steps) most = std::max(most, scratch_of(step));
  step_scratch_ = reserve(most);
  uint64_t partials = 0, pairs = 0;
  for (const StepSpec& step : plan_.steps) {
    const auto* spec = std::get_if<AttentionSpec>(&step);
    if (spec == nullptr) continue;
    if (spec->k.size() > kMaxSlots) {
      fail(ErrorCode::Unsupported, "FlashAttention over ", spec->k.size(), " slots; the CUDA backend takes at most ",
           kMaxSlots);
    }
    // A launch a step, or one launch: there each block may have some.
    const uint64_t slot_pairs = spec->k.size() * uint64_t(spec->kv_heads);
    const auto blocks = std::max(slot_pairs * uint64_t(decode_splits(*spec)), uint64_t(multiprocessors()));
    pairs = std::max({pairs, slot_pairs, uint64_t(multiprocessors())});
    partials = std::max(partials, blocks * uint64_t(spec->heads_per_kv()) * uint64_t(spec->head_dim + 2) * 4);
  }
  partials_ = reserve(partials);
  arrived_ = reserve(pairs * 4);
  barrier_ = reserve(2 * 4);
  mail_ = reserve(decode::kMailBytes);
  codes_ = reserve(decode::kMostCodesBytes);
  refused_ = reserve(4);
}

size_t CudaPart::port_of(uint32_t length) const {
  return size_t(std::find(graph_->inputs.begin(), graph_->inputs.end(), length) - graph_->inputs.begin());
}

void CudaPart::check_exchange(const CudaPart& first) const {
  for (size_t index = 0; index < num_gathers(); ++index) {
    if (plan_.gathers[index].own.limited == first.plan_.gathers[index].own.limited) continue;
    fail(ErrorCode::Unsupported, "AllGather ", index, " of '", graph_->name,
         "': one device computes all rows, another only the live ones; the CUDA backend exchanges equal rows");
  }
}

void CudaPart::bind(const PartMemory& memory) {
  const auto check = [&](const std::byte* address, uint32_t id) {
    cudaPointerAttributes attributes{};
    CUDA_CHECK(cudaPointerGetAttributes(&attributes, address));
    if (attributes.type != cudaMemoryTypeUnregistered) return;
    fail(ErrorCode::Argument, "run: '", graph_->values[id].name,
         "' is bound to memory that the GPU cannot reach; bind a tensor of this device");
  };
  for (size_t port = 0; port < memory.inputs.size(); ++port) check(memory.inputs[port], graph_->inputs[port]);
  for (size_t port = 0; port < memory.outputs.size(); ++port) check(memory.outputs[port], graph_->outputs[port]);

  port_inputs_ = memory.inputs;
  for (size_t port = 0; port < memory.outputs.size(); ++port) {
    std::byte* const begin = memory.outputs[port];
    const uint64_t bytes = uint64_t(plan_.outputs[port].bytes);
    output_targets_[port] = begin;
    for (size_t input = 0; input < memory.inputs.size(); ++input) {
      std::byte* const other = memory.inputs[input];
      if (staged_[input] != kNoBytes || begin >= other + plan_.input_bytes[input] || other >= begin + bytes) continue;
      if (copied_outputs_[port] == nullptr) copied_outputs_[port] = device_bytes(bytes);
      output_targets_[port] = copied_outputs_[port].get();
    }
  }
  for (uint32_t id = 0; id < plan_.storage.size(); ++id) {
    const Plan::Storage& storage = plan_.storage[id];
    std::byte* base = nullptr;
    if (storage.place == Plan::Place::Arena) base = memory_.get();
    if (storage.place == Plan::Place::Output) base = output_targets_[storage.port];
    if (storage.place == Plan::Place::Input)
      base = staged_[storage.port] == kNoBytes ? memory.inputs[storage.port] : memory_.get() + staged_[storage.port];
    values_[id] = base == nullptr ? nullptr : base + storage.offset;
  }
}

void CudaPart::launch_inputs() {
  StageArgs args{};
  args.refused = reinterpret_cast<int*>(memory_.get() + refused_);
  args.refused_host = refused_host_;
  const auto flush = [&] {
    if (args.count > 0) launch_stage(args, stream());
    args.count = 0;
  };
  for (size_t port = 0; port < graph_->inputs.size(); ++port) {
    if (staged_[port] == kNoBytes) continue;
    if (args.count == kMaxStaged) flush();
    StageInput& input = args.inputs[args.count++];
    input = {port_inputs_[port], memory_.get() + staged_[port], plan_.input_bytes[port], 1, nullptr, -1, int(port)};
    for (const Plan::FloatInput& each : plan_.float_inputs) {
      if (each.port != port) continue;
      input.elem = each.elem;
      input.rows = each.rows.rows;
      input.row_bytes = each.rows.cols * elem_bytes(each.elem);
      if (each.rows.limited) input.live = reinterpret_cast<const int*>(port_inputs_[port_of(plan_.live_rows)]);
    }
  }
  flush();
}

void CudaPart::launch_until(size_t index) {
  const size_t begin = index == 0 ? 0 : plan_.gathers[index - 1].next_step;
  const size_t end = index == num_gathers() ? plan_.steps.size() : plan_.gathers[index].next_step;
  for (size_t step = begin; step < end; ++step) {
    if (const size_t chained = launch_program_from(step, end); chained > 0) {
      step += chained - 1;
      continue;
    }
    if (step + 1 < end && fuses(plan_.steps[step], plan_.steps[step + 1])) {
      launch_fused(std::get<HeadsSpec>(plan_.steps[step]), std::get<AttentionSpec>(plan_.steps[step + 1]));
      ++step;
      continue;
    }
    std::visit([&](const auto& spec) { launch(spec); }, plan_.steps[step]);
  }
}

void CudaPart::launch_outputs(const PartMemory& memory) {
  for (size_t port = 0; port < memory.outputs.size(); ++port) {
    const Plan::OutputPort& output = plan_.outputs[port];
    if (output.rows.limited && output.rows.rows > 1) {  // a row alone is always live
      launch_zero_rows(output_targets_[port], int(output.rows.rows), output.row_bytes, live(output.rows),
                       reinterpret_cast<const int*>(memory_.get() + refused_), stream());
    }
    if (output_targets_[port] == memory.outputs[port]) continue;
    CUDA_CHECK(cudaMemcpyAsync(memory.outputs[port], output_targets_[port], size_t(output.bytes), cudaMemcpyDefault,
                               stream()));
    break_overlap();
  }
}

void CudaPart::give(size_t index, CudaPart& target) const {
  const Plan::Gather& from = plan_.gathers[index];
  const Plan::Gather& to = target.plan_.gathers[index];
  const size_t bytes = size_t(elem_bytes(from.elem));
  std::byte* const columns = target.at(to.whole.value) + size_t(from.offset) * bytes;
  CUDA_CHECK(cudaMemcpy2DAsync(columns, size_t(to.whole.stride) * bytes, at(from.own.value),
                               size_t(from.own.stride) * bytes, size_t(from.own.cols) * bytes, size_t(from.own.rows),
                               cudaMemcpyDefault, target.stream()));
}

void CudaPart::clear_refusal() {
  CUDA_CHECK(cudaMemsetAsync(memory_.get() + refused_, 0, 4, stream()));
  CUDA_CHECK(cudaStreamSynchronize(stream()));
}

const void* CudaPart::weight(uint32_t id) const {
  return id == kNoValue ? nullptr : weights_[graph_->values[id].weight]->data();
}

const int* CudaPart::refusal(const Rows& rows) const {
  const bool outlives = plan_.storage[rows.value].place == Plan::Place::Output;
  return outlives ? reinterpret_cast<const int*>(memory_.get() + refused_) : nullptr;
}

}  // namespace tcim_lite::cuda
