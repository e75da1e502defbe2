// The interface between the runtime and a kind of device. One Backend per process and kind; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "graph/plan/step_name.h"

namespace tcim_lite {

// Memory of a device. data() may be an address that only the device can reach: Backend::host_view() says.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  std::byte* data() const noexcept { return data_; }
  uint64_t bytes() const noexcept { return bytes_; }

 protected:
  std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
};

// The packed bytes of one weight, kept alive by the caller while the executable lives. 64-byte aligned.
using WeightBytes = std::span<const std::byte>;

// One device's share of a model: all of it, unless the model is for several devices (graph/parts.h).
struct Part {
  std::shared_ptr<const Graph> graph;
  std::vector<WeightBytes> weights;  // [index in the weight table]; empty where the graph does not use it
  // What place_weight() made of them, by the same index; no entries where weights are used as they lie.
  std::vector<std::shared_ptr<DeviceMemory>> placed = {};
  int device_id = 0;
};

// A weight as the weight table describes it.
struct WeightForm {
  WeightFormat format;
  DType dtype;
  const Shape& shape;
};

// The device memory of a part's inputs and states, and of its outputs, in graph order.
struct PartMemory {
  std::vector<std::byte*> inputs;
  std::vector<std::byte*> outputs;
};

// What the steps of one name took since they are timed.
struct StepTime {
  StepName name;
  double seconds = 0;
};

// A step of the last run, in nanoseconds of the steady clock.
struct StepSpan {
  StepName name;
  std::string value;  // name of a value that it makes, of the first of its ops
  uint64_t begin_ns = 0, end_ns = 0;
};

// A model made ready to run. run() is not reentrant; the caller (a stream) serialises it.
class Executable {
 public:
  virtual ~Executable() = default;

  // `memory` by rank. An output may be the memory of an input of the same call: inputs are read before outputs are
  // written (C-9). Throws Error(Argument) for impossible lengths and for a NaN or infinity in a live row of an input,
  // before anything is written. The stream has set the calling thread to round to nearest and to keep subnormals
  // (docs/numerics.md section 8).
  virtual void run(std::span<const PartMemory> memory) = 0;

  // Bytes of device memory that a part holds besides weights, inputs and outputs.
  virtual uint64_t scratch_bytes(size_t rank) const noexcept = 0;

  // Times the steps of later runs from zero, or leaves that.
  virtual void time_steps(bool on) = 0;
  // In the order in which the names first run; parts together.
  virtual std::vector<StepTime> step_times() const = 0;
  // Of the last run in the order in which they ran, while steps are timed; none where the backend cannot tell.
  virtual std::vector<StepSpan> last_steps() const { return {}; }
};

// Who uses new memory, if a backend can choose where it lies. NearBoth: a run writes what the next one reads, and the
// host may read or write it between them.
enum class Placing { NearDevice, NearHost, NearBoth };

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const noexcept = 0;

  // Bytes of memory of a device when the profile does not say; 0: as much as the machine has.
  virtual uint64_t memory_bytes(int device_id) = 0;

  // Zeroed memory. Throws Error(Device) when there is none.
  virtual std::shared_ptr<DeviceMemory> allocate(int device_id, uint64_t bytes, Placing placing) = 0;

  // The host address of the memory that a device addresses as `device`; null if the host cannot access it.
  virtual std::byte* host_view(std::byte* device) = 0;

  // The weight in device memory, in the layout that this backend's kernels read; null if they read the packed bytes in
  // place.
  virtual std::shared_ptr<DeviceMemory> place_weight(int device_id, WeightBytes packed, const WeightForm& form) = 0;

  // Blocking copies between host and device memory of this backend.
  virtual void copy_to_host(void* host, const std::byte* device, uint64_t bytes) = 0;
  virtual void copy_from_host(std::byte* device, const void* host, uint64_t bytes) = 0;

  // The parts of a model by rank; their AllGathers exchange columns (graph/parts.h).
  virtual std::unique_ptr<Executable> compile(std::vector<Part> parts) = 0;
};

// The process's CPU backend (csrc/backends/cpu).
Backend& cpu_backend();

// The process's CUDA backend, from its shared library beside this one. Throws Error(Unsupported), which says what was
// looked for and what to do, when the library is not there, cannot be loaded, or finds no driver or GPU.
Backend& cuda_backend();

}  // namespace tcim_lite
