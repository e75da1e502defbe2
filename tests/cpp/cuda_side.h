// A graph on one backend, for tests that compare backends.
#pragma once

#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "backends/backend.h"
#include "base/half.h"
#include "graph_maker.h"

namespace tcim_lite::test {

inline uint64_t bytes_of(const Value& value) { return uint64_t(num_elements(value.shape) * size_of(value.dtype)); }

// A graph with its memory on one backend. Memory is filled alike on both.
class Side {
 public:
  Side(Backend& backend, const GraphMaker& maker, const Graph& graph, uint32_t seed, Placing placing)
      : backend_(backend), graph_(graph) {
    Part part{std::make_shared<const Graph>(graph), maker.weights()};
    part.placed.resize(part.weights.size());
    for (const Value& value : graph.values) {
      if (value.kind != ValueKind::Weight) continue;
      const WeightForm form{value.format, value.dtype, value.shape};
      part.placed[value.weight] = backend.place_weight(0, part.weights[value.weight], form);
    }
    std::vector<Part> parts;
    parts.push_back(std::move(part));
    executable_ = backend.compile(std::move(parts));
    std::mt19937 random(seed);
    for (uint32_t id : graph.inputs) {
      const Value& value = graph.values[id];
      const bool state = value.kind == ValueKind::State;
      inputs_.push_back(backend.allocate(0, bytes_of(value), state ? Placing::NearDevice : placing));
      if (value.dtype != DType::Int32) fill(*inputs_.back(), value, random);
    }
    for (uint32_t id : graph.outputs) outputs_.push_back(backend.allocate(0, bytes_of(graph.values[id]), placing));
  }

  // Other values into the inputs; states stay.
  void refill(uint32_t seed) {
    std::mt19937 random(seed);
    for (size_t port = 0; port < inputs_.size(); ++port) {
      const Value& value = graph_.values[graph_.inputs[port]];
      if (value.kind == ValueKind::Input && value.dtype != DType::Int32) fill(*inputs_[port], value, random);
    }
  }

  // Of positions [1, T] the first; each further one is three more.
  void set_length(uint32_t id, int32_t length) {
    std::vector<int32_t> values(size_t(num_elements(graph_.values[id].shape)));
    for (size_t i = 0; i < values.size(); ++i) values[i] = length + 3 * int32_t(i);
    set_first(id, values.data(), values.size() * sizeof(int32_t));
  }
  // The first number of an fp16 input.
  void set_first(uint32_t id, float number) {
    const uint16_t half = float_to_half(number);
    set_first(id, &half, sizeof(half));
  }

  void run() {
    PartMemory memory;
    for (const auto& each : inputs_) memory.inputs.push_back(each->data());
    for (const auto& each : outputs_) {
      const std::vector<std::byte> poison(each->bytes(), std::byte{0xff});
      backend_.copy_from_host(each->data(), poison.data(), poison.size());
      memory.outputs.push_back(each->data());
    }
    executable_->run({&memory, 1});
  }

  std::vector<float> output(size_t port) const { return floats(*outputs_[port], graph_.values[graph_.outputs[port]]); }
  std::vector<float> state(size_t port) const { return floats(*inputs_[port], graph_.values[graph_.inputs[port]]); }

 private:
  void set_first(uint32_t id, const void* from, size_t bytes) {
    for (size_t port = 0; port < inputs_.size(); ++port) {
      if (graph_.inputs[port] == id) backend_.copy_from_host(inputs_[port]->data(), from, bytes);
    }
  }

  void fill(DeviceMemory& memory, const Value& value, std::mt19937& random) {
    std::vector<std::byte> bytes(memory.bytes());
    for (int64_t i = 0; i < num_elements(value.shape); ++i) {
      if (value.dtype == DType::UInt8) {
        bytes[size_t(i)] = std::byte(random() & 0xff);
        continue;
      }
      const float number = std::uniform_real_distribution<float>(-2, 2)(random);
      const uint16_t half = float_to_half(number);
      std::memcpy(bytes.data() + i * size_of(value.dtype),
                  value.dtype == DType::Float16 ? static_cast<const void*>(&half) : &number,
                  size_t(size_of(value.dtype)));
    }
    backend_.copy_from_host(memory.data(), bytes.data(), bytes.size());
  }

  std::vector<float> floats(const DeviceMemory& memory, const Value& value) const {
    std::vector<std::byte> bytes(memory.bytes());
    backend_.copy_to_host(bytes.data(), memory.data(), bytes.size());
    std::vector<float> numbers(size_t(num_elements(value.shape)));
    for (size_t i = 0; i < numbers.size(); ++i) {
      uint16_t half;
      std::memcpy(&half, bytes.data() + (value.dtype == DType::Float16 ? 2 * i : 0), 2);
      numbers[i] = half_to_float(half);
      if (value.dtype == DType::Float32) std::memcpy(&numbers[i], bytes.data() + 4 * i, 4);
      if (value.dtype != DType::Int32) continue;
      int32_t whole;
      std::memcpy(&whole, bytes.data() + 4 * i, 4);
      numbers[i] = float(whole);
    }
    return numbers;
  }

  Backend& backend_;
  const Graph& graph_;
  std::unique_ptr<Executable> executable_;
  std::vector<std::shared_ptr<DeviceMemory>> inputs_, outputs_;
};

}  // namespace tcim_lite::test
