#include "runtime/program.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/half.h"
#include "base/log.h"
#include "graph/axis_roles.h"
#include "graph/taps.h"
#include "runtime/devices.h"
#include "runtime/host_bytes.h"

namespace tcim_lite {
namespace {

std::vector<float> floats_of(const Buffer& memory, const TensorFacts& tensor) {
  std::vector<float> values(size_t(num_elements(tensor.shape)));
  if (tensor.dtype == DType::Float32) {
    memory.read(tensor.offset, tensor.span_bytes, reinterpret_cast<std::byte*>(values.data()));
    return values;
  }
  std::vector<uint16_t> halves(values.size());
  memory.read(tensor.offset, tensor.span_bytes, reinterpret_cast<std::byte*>(halves.data()));
  std::transform(halves.begin(), halves.end(), values.begin(), half_to_float);
  return values;
}

// Null where no tap is asked for.
std::shared_ptr<const Graph> tapped_graph(const ModelFile& file, std::span<const std::string> taps) {
  if (taps.empty()) return nullptr;
  const hmm::File& content = file.content();
  if (content.parts.size() > 1)
    fail(ErrorCode::Unsupported, file.label(), " is a model for ", content.parts.size(),
         " devices, which has no taps (Option.set_taps, TCIM_LITE_TAPS); load the .hmm of the same package, whose ",
         "results are the same bit for bit, or load without taps");
  std::vector<std::string> unmatched;
  auto graph = std::make_shared<const Graph>(with_taps(content.graph(), taps, wanted_numerics(), unmatched));
  for (const std::string& pattern : unmatched) {
    log(LogLevel::Warn, concat(file.label(), ": taps: no intermediate value fits '", pattern,
                               "'; ignored (`tcim-lite inspect --taps` lists them)"));
  }
  return graph;
}

}  // namespace

Program::Program(std::vector<Device*> devices, std::shared_ptr<const ModelFile> file, WeightStore& store,
                 const ShouldAbort& should_abort, std::span<const std::string> taps)
    : devices_(std::move(devices)), file_(std::move(file)), tapped_(tapped_graph(*file_, taps)), files_{file_} {
  std::vector<Part> parts;
  for (size_t rank = 0; rank < devices_.size(); ++rank) {
    const Graph& graph = this->parts()[rank];
    const Weights& weights = weights_.emplace_back(store.acquire(*devices_[rank], file_, graph, should_abort));
    // A graph of the file lives inside the file's content: share its ownership.
    Part& part =
        parts.emplace_back(Part{tapped_ != nullptr ? tapped_ : std::shared_ptr<const Graph>(file_, &graph), {}});
    part.device_id = devices_[rank]->id();
    for (const auto& weight : weights) {
      if (weight != nullptr) files_.insert(weight->file());
      part.weights.push_back(weight == nullptr ? WeightBytes() : weight->bytes());
      part.placed.push_back(weight == nullptr ? nullptr : weight->placed());
    }
  }
  executable_ = device().backend().compile(std::move(parts));
  for (size_t rank = 0; rank < devices_.size(); ++rank) {
    scratch_.emplace_back(*devices_[rank], executable_->scratch_bytes(rank), MemoryUse::Scratch, file_->label());
  }
}

std::span<const Graph> Program::parts() const noexcept {
  if (tapped_ != nullptr) return {tapped_.get(), 1};
  return file_->content().parts;
}

std::vector<std::string> Program::changed_files() const {
  std::vector<std::string> changes;
  for (const auto& file : files_) {
    if (std::string change = file->change(); !change.empty()) changes.push_back(std::move(change));
  }
  return changes;
}

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

void Program::drop_error() noexcept {
  const std::lock_guard lock(error_mutex_);
  error_ = nullptr;
  failed_.store(false, std::memory_order_relaxed);
}

BoundRun::BoundRun(uint64_t module, std::shared_ptr<Program> program, PortTable& inputs, PortTable& outputs)
    : module_(module), program_(std::move(program)), uses_(std::make_shared<Uses>()) {
  buffers_.reserve(inputs.size() + outputs.size());
  memory_.resize(program_->devices().size());
  for (size_t rank = 0; rank < memory_.size(); ++rank) {
    // A cut tensor is bound as a whole, at offset 0 of every slab.
    for (const Port& port : inputs) memory_[rank].inputs.push_back(port.buffer->slab(rank) + port.offset);
    for (const Port& port : outputs) memory_[rank].outputs.push_back(port.buffer->slab(rank) + port.offset);
  }
  for (PortTable* ports : {&inputs, &outputs}) {
    for (const Port& port : *ports) {
      buffers_.push_back(port.buffer);
      offsets_.push_back(port.offset);
    }
  }
  for (const Port& port : outputs) {
    if (!port.sink) continue;
    buffers_.push_back(port.sink->buffer());
    sinks_.push_back({port.tensor(), *port.sink});
  }
  for (const auto& buffer : buffers_) buffer->add_uses(uses_);
}

void BoundRun::begin_use(uint64_t stream) noexcept {
  stream_.store(stream, std::memory_order_relaxed);
  uses_->begin();
}

void BoundRun::compute() {
  const DeviceWork work(program_->devices());
  program_->executable().run(memory_);
}

// Of a model for several devices, as its first part sees it.
RunEvent BoundRun::describe() const {
  RunEvent event;
  event.module = module_;
  event.program = program_;
  event.memory = buffers_;
  event.stream = stream_.load(std::memory_order_relaxed);
  const Graph& graph = program_->parts().front();
  const auto facts = [&](size_t index, uint32_t value) {
    TensorFacts made;
    made.buffer = buffers_[index]->handle();
    made.offset = offsets_[index];
    made.device_id = buffers_[index]->device_id();
    made.dtype = graph.values[value].dtype;
    made.shape = graph.values[value].shape;
    made.span_bytes = uint64_t(num_elements(made.shape)) * uint64_t(size_of(made.dtype));
    return made;
  };
  for (size_t port = 0; port < graph.inputs.size(); ++port) {
    const TensorFacts& input = event.inputs.emplace_back(facts(port, graph.inputs[port]));
    std::optional<int32_t>& length = event.lengths.emplace_back();
    std::vector<int32_t>& positions = event.positions.emplace_back();
    const std::string& role = graph.values[graph.inputs[port]].role.name;
    event.linear_masks.push_back(role == kLinearMaskRole ? floats_of(*buffers_[port], input) : std::vector<float>());
    if (input.dtype == DType::Int32 && (input.shape.size() == 2 || is_axis_role(role) || role == kAxesRole)) {
      positions.resize(size_t(num_elements(input.shape)));
      buffers_[port]->read(input.offset, input.span_bytes, reinterpret_cast<std::byte*>(positions.data()));
    }
    if (input.dtype != DType::Int32 || num_elements(input.shape) != 1) continue;
    buffers_[port]->read(input.offset, sizeof(int32_t), reinterpret_cast<std::byte*>(&length.emplace()));
  }
  for (size_t port = 0; port < graph.outputs.size(); ++port) {
    event.outputs.push_back(facts(graph.inputs.size() + port, graph.outputs[port]));
  }
  for (const Sink& sink : sinks_) event.outputs.emplace_back(sink.to);
  event.changed_files = program_->changed_files();
  return event;
}

Work::Round BoundRun::round() noexcept {
  try {
    if (!observed()) [[likely]] {
      compute();
    } else {
      RunEvent event = describe();
      if (!observe_run_ready(event)) return Round::NotYet;
      try {
        observe_run_begin(event);
        compute();
      } catch (...) {
        event.failed = true;
        observe_run_end(event);
        throw;
      }
      observe_run_end(event);
    }
  } catch (...) {
    failed_ = true;
    program_->keep_error(std::current_exception());
  }
  return failed_ ? Round::Last : Round::Done;
}

void BoundRun::finish(bool dropped) noexcept {
  try {
    if (dropped)
      throw ProcessEnding(ErrorCode::State, "run: the process was ending, and rounds that had not begun were dropped");
    if (!failed_) fill_sinks();
  } catch (...) {
    program_->keep_error(std::current_exception());
  }
  failed_ = false;
  end_use();
}

// Tensor::cast_to would wait for this run, which is still active.
void BoundRun::fill_sinks() {
  for (const Sink& sink : sinks_) {
    const TensorInfo &from = sink.from.info(), &to = sink.to.info();
    const Shape from_strides = byte_strides(from), to_strides = byte_strides(to);
    const HostBytes source(sink.from, HostAccess::Read);
    copy_array({source.data(), from.dtype, from.shape, from_strides}, {sink.to.data(), to.dtype, to.shape, to_strides},
               "set_output");
  }
}

}  // namespace tcim_lite
