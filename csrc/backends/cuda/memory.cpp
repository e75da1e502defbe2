#include "backends/cuda/memory.h"

#include <algorithm>
#include <utility>

#include "backends/cuda/kernels/kernels.h"
#include "backends/cuda/kernels/network.h"
#include "base/error.h"

namespace tcim_lite::cuda {
namespace {

constexpr uint64_t kAlignment = 256;
constexpr uint64_t kNotStaged = UINT64_MAX;

// States stay where they are bound; other inputs are copied before the run reads them, unless steps can read them
// there.
bool is_staged(const Value& value) { return value.kind == ValueKind::Input; }

// Whether kernels read `address` as fast as the arena, and with the same alignment.
bool lies_on(int gpu, const std::byte* address, const cudaPointerAttributes& attributes) {
  return attributes.type == cudaMemoryTypeDevice && attributes.device == gpu &&
         reinterpret_cast<uintptr_t>(address) % kAlignment == 0;
}

// Copies an output to where it is bound, unless an input was refused.
void launch_delivery(const std::byte* from, std::byte* to, int64_t bytes, const int* refused, cudaStream_t stream) {
  int64_t word = 16;
  while ((reinterpret_cast<uintptr_t>(from) | reinterpret_cast<uintptr_t>(to) | uintptr_t(bytes)) % uintptr_t(word))
    word /= 2;
  launch_box(word, {from, to, bytes / word, 1, {bytes / word}, {1}, {1}, refused}, stream);
}

}  // namespace

CudaMemory::CudaMemory(const Graph& graph, const Plan& plan, std::vector<std::shared_ptr<DeviceMemory>> weights,
                       HostFlags* flags)
    : graph_(graph), plan_(plan), weights_(std::move(weights)), flags_(flags) {
  reserve(uint64_t(plan_.arena_bytes));  // first: values of the arena lie at their offsets
  for (size_t port = 0; port < graph_.inputs.size(); ++port) {
    const bool staged = is_staged(graph_.values[graph_.inputs[port]]);
    staged_.push_back(staged ? reserve(uint64_t(plan_.input_bytes[port])) : kNotStaged);
  }
  refused_ = reserve(sizeof(int));
  read_from_.resize(graph_.inputs.size());
  copied_outputs_.resize(plan_.outputs.size());
  output_targets_.resize(plan_.outputs.size());
  values_.resize(plan_.storage.size());
  for (uint32_t id = 0; id < graph_.values.size(); ++id) {
    if (graph_.values[id].kind != ValueKind::Weight) continue;
    const auto& weight = weights_[graph_.values[id].weight];
    values_[id] = weight == nullptr ? nullptr : weight->data();
  }
}

uint64_t CudaMemory::reserve(uint64_t bytes) {
  const uint64_t offset = bytes_;
  bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return offset;
}

void CudaMemory::allocate() {
  memory_ = device_bytes(bytes_);
  zero_gpu(memory_.get(), bytes_);
}

void CudaMemory::bind(const PartMemory& memory) {
  const auto check = [&](const std::byte* address, uint32_t id) {
    cudaPointerAttributes attributes{};
    CUDA_CHECK(cudaPointerGetAttributes(&attributes, address));
    if (attributes.type != cudaMemoryTypeUnregistered) return attributes;
    fail(ErrorCode::Argument, "run: '", graph_.values[id].name,
         "' is bound to memory that the GPU cannot reach; bind a tensor of this device");
  };
  int gpu = 0;
  CUDA_CHECK(cudaGetDevice(&gpu));
  port_inputs_ = memory.inputs;
  for (size_t port = 0; port < memory.inputs.size(); ++port) {
    const cudaPointerAttributes attributes = check(memory.inputs[port], graph_.inputs[port]);
    const bool in_place =
        staged_[port] == kNotStaged || (reads_all_rows(port) && lies_on(gpu, memory.inputs[port], attributes));
    read_from_[port] = in_place ? memory.inputs[port] : scratch(staged_[port]);
  }
  for (size_t port = 0; port < memory.outputs.size(); ++port) check(memory.outputs[port], graph_.outputs[port]);

  for (size_t port = 0; port < memory.outputs.size(); ++port) {
    std::byte* const begin = memory.outputs[port];
    const uint64_t bytes = uint64_t(plan_.outputs[port].bytes);
    output_targets_[port] = begin;
    for (size_t input = 0; input < memory.inputs.size(); ++input) {
      std::byte* const other = read_from_[input];
      if (begin >= other + plan_.input_bytes[input] || other >= begin + bytes) continue;
      if (input == plan_.outputs[port].over && other == begin) continue;
      if (copied_outputs_[port] == nullptr) copied_outputs_[port] = device_bytes(bytes);
      output_targets_[port] = copied_outputs_[port].get();
    }
  }
  for (uint32_t id = 0; id < plan_.storage.size(); ++id) {
    const Plan::Storage& storage = plan_.storage[id];
    std::byte* base = nullptr;
    if (storage.place == Plan::Place::None) continue;
    if (storage.place == Plan::Place::Arena) base = memory_.get();
    if (storage.place == Plan::Place::Output) base = output_targets_[storage.port];
    if (storage.place == Plan::Place::Input) base = read_from_[storage.port];
    values_[id] = base + storage.offset;
  }
}

bool CudaMemory::reads_all_rows(size_t port) const {
  return std::none_of(plan_.float_inputs.begin(), plan_.float_inputs.end(),
                      [&](const Plan::FloatInput& each) { return each.port == port && each.rows.limited; });
}

void CudaMemory::launch_inputs(cudaStream_t stream) {
  StageArgs args{};
  args.refused = reinterpret_cast<int*>(scratch(refused_));
  args.refused_host = &flags_->refused;
  const auto flush = [&] {
    if (args.count > 0) launch_stage(args, stream);
    args.count = 0;
  };
  for (size_t port = 0; port < graph_.inputs.size(); ++port) {
    if (staged_[port] == kNotStaged) continue;
    StageInput input = {port_inputs_[port], read_from_[port], plan_.input_bytes[port], 1, nullptr, -1, int(port)};
    for (const Plan::FloatInput& each : plan_.float_inputs) {
      if (each.port != port) continue;
      input.elem = each.elem;
      input.rows = each.rows.rows;
      input.row_bytes = each.rows.cols * elem_bytes(each.elem);
      if (each.rows.limited) input.live = reinterpret_cast<const int*>(port_inputs_[port_of(plan_.live_rows)]);
    }
    if (input.to == input.from && input.elem < 0) continue;
    if (args.count == kMaxStaged) flush();
    args.inputs[args.count++] = input;
  }
  flush();
}

void CudaMemory::launch_outputs(const PartMemory& memory, cudaStream_t stream) {
  for (size_t port = 0; port < memory.outputs.size(); ++port) {
    const Plan::OutputPort& output = plan_.outputs[port];
    if (output.rows.limited && output.rows.rows > 1) {  // a row alone is always live
      launch_zero_rows(output_targets_[port], int(output.rows.rows), output.row_bytes, live(output.rows), refused(),
                       stream);
    }
    if (output_targets_[port] == memory.outputs[port]) continue;
    launch_delivery(output_targets_[port], memory.outputs[port], output.bytes, refused(), stream);
  }
}

void CudaMemory::clear_refusal(cudaStream_t stream) {
  CUDA_CHECK(cudaMemsetAsync(scratch(refused_), 0, sizeof(int), stream));
  CUDA_CHECK(cudaStreamSynchronize(stream));
}

const int* CudaMemory::refusal(uint32_t value) const {
  return plan_.storage[value].place == Plan::Place::Output ? refused() : nullptr;
}

size_t CudaMemory::port_of(uint32_t length) const {
  return size_t(std::find(graph_.inputs.begin(), graph_.inputs.end(), length) - graph_.inputs.begin());
}

}  // namespace tcim_lite::cuda
