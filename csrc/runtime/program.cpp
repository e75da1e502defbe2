#include "runtime/program.h"

#include <utility>

#include "base/log.h"
#include "runtime/devices.h"

namespace tcim_lite {

Program::Program(Device& device, std::shared_ptr<const ModelFile> file, Weights weights)
    : device_(device), file_(std::move(file)), weights_(std::move(weights)) {
  std::vector<WeightBytes> bytes;
  bytes.reserve(weights_.size());
  for (const auto& weight : weights_) bytes.push_back(weight->bytes());
  // The graph lives inside the file's content: share its ownership.
  executable_ =
      device.backend().compile(std::shared_ptr<const Graph>(file_, &file_->content().graph), std::move(bytes));
  scratch_bytes_ = executable_->scratch_bytes();
  device.charge(scratch_bytes_, MemoryUse::Scratch);
}

Program::~Program() { device_.discharge(scratch_bytes_, MemoryUse::Scratch); }

void Program::keep_error(std::exception_ptr error) noexcept {
  const std::lock_guard lock(error_mutex_);
  if (error_ == nullptr) error_ = std::move(error);
  failed_.store(true, std::memory_order_release);
}

void Program::raise_error() {
  if (!failed_.load(std::memory_order_acquire)) return;
  std::exception_ptr error;
  {
    const std::lock_guard lock(error_mutex_);
    std::swap(error, error_);
    failed_.store(false, std::memory_order_relaxed);
  }
  if (error != nullptr) std::rethrow_exception(error);
}

BoundRun::BoundRun(std::shared_ptr<Program> program, SlotTable& inputs, SlotTable& outputs)
    : program_(std::move(program)) {
  buffers_.reserve(inputs.size() + outputs.size());
  for (const Slot& slot : inputs) {
    inputs_.push_back(slot.data());
    buffers_.push_back(slot.buffer);
  }
  for (const Slot& slot : outputs) {
    outputs_.push_back(slot.data());
    buffers_.push_back(slot.buffer);
    if (!slot.sink) continue;
    buffers_.push_back(slot.sink->buffer());
    sinks_.push_back({slot.tensor(), *slot.sink});
  }
}

void BoundRun::begin_use() noexcept {
  for (const auto& buffer : buffers_) buffer->begin_use();
}

void BoundRun::execute(int rounds) noexcept {
  try {
    for (int round = 0; round < rounds; ++round) program_->executable().run(inputs_, outputs_);
    fill_sinks();
  } catch (...) {
    program_->keep_error(std::current_exception());
  }
  end_use();
}

void BoundRun::end_use() noexcept {
  for (const auto& buffer : buffers_) buffer->end_use();
}

// Not Tensor::cast_to, which would wait for this very run.
void BoundRun::fill_sinks() {
  for (const Sink& sink : sinks_) {
    const TensorInfo &from = sink.from.info(), &to = sink.to.info();
    const Shape from_strides = byte_strides(from), to_strides = byte_strides(to);
    copy_array({sink.from.data(), from.dtype, from.shape, from_strides},
               {sink.to.data(), to.dtype, to.shape, to_strides}, "set_output");
  }
}

}  // namespace tcim_lite
