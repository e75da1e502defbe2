// What a graph knows of one kind of op. Each ops/<op>.cpp defines one, op_table.cpp lists them in the order of ops.def.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "graph/cost.h"
#include "graph/graph.h"

namespace tcim_lite {

class OpCheck;
class PlanBuilder;

constexpr size_t kNoOperand = SIZE_MAX;

// A state that an op reads and updates in place: the result is the same storage.
struct StateOperand {
  size_t input, output;  // of the op
  // Inputs, the lengths: rows [valid, valid + current) of axis 2 are written. kNoOperand: all of it is.
  size_t valid = kNoOperand, current = kNoOperand;
};

// How devices may share the work of an op (docs/hmm-format.md section 5.1). Every element is computed whole on one of
// them.
enum class Cut {
  None,     // every device computes all of the result
  Columns,  // the last axis of the result
  Heads,    // the axis of heads: 2 of [B, T, heads, D], 1 of a cache
  Rows,     // any axis but the last
  Follows,  // a view: where its operand is cut
};
std::string_view name_of(Cut cut);

struct OpDefinition {
  // "operand shape dtype, ... {attribute: type} -> result": T is the graph's tensor dtype, float16 or float32, B slots,
  // T tokens, C context length. Operands called weight, bias, cos and sin are of kind weight, all others are not.
  std::string_view signature;
  std::string_view meaning;
  Cut cut = Cut::None;
  // Arity, attributes, dtypes and shapes. Value ids are in range and inputs are produced. Throws Error(Format) naming
  // the op and the value at fault.
  void (*check)(const OpCheck& op) = nullptr;
  // Makes the op a step of the plan, a part of one, or a view. Throws Error(Unsupported) for a legal op that the
  // planner cannot place.
  void (*plan)(PlanBuilder& plan, const Op& op) = nullptr;
  // Null: none. Every other operand is no state.
  std::vector<StateOperand> (*states)(const Op& op) = nullptr;
  // Operands from this one on may have a state's dtype where it is not T (TCIM_LITE_NUMERICS=float).
  size_t state_dtype_from = kNoOperand;
  // Fills in what a run costs beside the weights (graph/cost.h); lengths as values of the graph. Null: nothing that
  // counts.
  void (*cost)(const Graph& graph, const Op& op, OpCost& cost) = nullptr;
  bool reads_weights_by_row = false;  // a row for a token, which is nothing
  size_t expert_ids = kNoOperand;     // weights are of experts, and this operand chooses them
  size_t carried = kNoOperand;        // what a run hands to the next: none of its axes are tokens
};

const OpDefinition& definition_of(OpKind kind);
size_t num_ops();

// The states that `op` reads and updates.
std::vector<StateOperand> states_of(const Op& op);

// By value of a valid graph: whether it is what a run takes from the one before or hands to the next, or a part of that
// as the program sees it.
std::vector<bool> carried_values(const Graph& graph);

}  // namespace tcim_lite
