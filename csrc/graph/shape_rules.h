// The arity, dtype and shape rule of each op (ops.def).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "graph/graph.h"

namespace tcim_lite {

// What the ops of a graph must agree on, and who produced what; fed with the ops in order.
struct ShapeContext {
  explicit ShapeContext(const Graph& graph) : graph(graph), producer(graph.values.size(), kNoValue) {}

  const Graph& graph;
  std::vector<uint32_t> producer;     // op of each intermediate
  std::optional<DType> tensor_dtype;  // T
  std::optional<int64_t> context;     // C
};

// Value ids are in range and inputs are produced. Throws Error(Format).
void check_shapes(ShapeContext& context, uint32_t op_index);

// "float16 [1, 4, 64]", with kind and format where they are unusual.
std::string describe(const Value& value);

}  // namespace tcim_lite
