// Graphs compiled for the CPU, and memory of their inputs and outputs.
#pragma once

#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "backends/backend.h"
#include "base/half.h"
#include "graph_maker.h"

namespace tcim_lite::test {
namespace {

// Memory of a graph's inputs and outputs. Two of the same seed hold the same input.
struct Ports {
  Ports(const Graph& graph, uint32_t seed) {
    std::mt19937 random(seed);
    for (uint32_t id : graph.inputs) {
      const Value& value = graph.values[id];
      inputs.push_back(cpu_backend().allocate(0, bytes_of(value), Placing::NearDevice));
      if (value.kind == ValueKind::State || value.dtype == DType::Int32) continue;
      for (int64_t i = 0; i < num_elements(value.shape); ++i) {
        const float number = std::uniform_real_distribution<float>(-2, 2)(random);
        const uint16_t half = float_to_half(number);
        const bool narrow = value.dtype == DType::Float16;
        std::memcpy(inputs.back()->data() + i * size_of(value.dtype),
                    narrow ? static_cast<const void*>(&half) : &number, size_t(size_of(value.dtype)));
      }
    }
    for (uint32_t id : graph.outputs) {
      outputs.push_back(cpu_backend().allocate(0, bytes_of(graph.values[id]), Placing::NearDevice));
      std::memset(outputs.back()->data(), 0xff, outputs.back()->bytes());
    }
  }

  static uint64_t bytes_of(const Value& value) { return uint64_t(num_elements(value.shape) * size_of(value.dtype)); }
  void set_length(const Graph& graph, uint32_t id, int32_t length) {
    for (size_t port = 0; port < inputs.size(); ++port) {
      if (graph.inputs[port] == id) std::memcpy(inputs[port]->data(), &length, 4);
    }
  }
  void run(Executable& executable) {
    PartMemory part;
    for (const auto& memory : inputs) part.inputs.push_back(memory->data());
    for (const auto& memory : outputs) part.outputs.push_back(memory->data());
    executable.run({&part, 1});
  }

  std::vector<std::shared_ptr<DeviceMemory>> inputs, outputs;
};

std::unique_ptr<Executable> compile(const GraphMaker& maker, const Graph& graph) {
  validate(graph);
  return cpu_backend().compile({{std::make_shared<const Graph>(graph), maker.weights()}});
}

}  // namespace
}  // namespace tcim_lite::test
