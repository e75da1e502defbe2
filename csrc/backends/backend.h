// What the runtime asks of a kind of device. One Backend per process and kind; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace tcim_lite {

// Memory of a device. On the CPU data() is host memory.
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
};

// The device memory of a part's inputs and states, and of its outputs, in graph order.
struct PartMemory {
  std::vector<std::byte*> inputs;
  std::vector<std::byte*> outputs;
};

// A model made ready to run. run() is not reentrant; the caller (a stream) serialises it.
class Executable {
 public:
  virtual ~Executable() = default;

  // `memory` by rank. An output may be the memory of an input of the same call: inputs are read before outputs are
  // written (C-9). Throws Error(Argument) for lengths that cannot be and for a NaN or infinity in a live row of an
  // input, before anything is written. The calling thread rounds to nearest and keeps denormals (numerics.md section
  // 5); the stream sees to that.
  virtual void run(std::span<const PartMemory> memory) = 0;

  // Bytes of device memory that a part holds besides weights, inputs and outputs.
  virtual uint64_t scratch_bytes(size_t rank) const noexcept = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const noexcept = 0;

  // Zeroed memory (G-6). Throws Error(Device) when there is none.
  virtual std::shared_ptr<DeviceMemory> allocate(uint64_t bytes) = 0;

  // Blocking copies between host and device memory of this backend.
  virtual void copy_to_host(void* host, const std::byte* device, uint64_t bytes) = 0;
  virtual void copy_from_host(std::byte* device, const void* host, uint64_t bytes) = 0;

  // The parts of a model by rank; their AllGathers exchange columns (graph/parts.h).
  virtual std::unique_ptr<Executable> compile(std::vector<Part> parts) = 0;
};

// The process's CPU backend (csrc/backends/cpu).
Backend& cpu_backend();

}  // namespace tcim_lite
