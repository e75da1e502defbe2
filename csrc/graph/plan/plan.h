// Turns a validated graph into a plan: fuses and plans memory. What every backend shares.
//
// Fusions, each keeping every rounding of the unfused graph:
//   RMSNorm -> Linear               the norm is the Linear's prologue and is never stored
//   Linear -> Add, Linear -> SiluMul  the Linear's epilogue; so with MoELinear -> SiluMul and MoECombine -> Add
//   [RMSNorm ->] [Rope ->] KVcache    one pass over the rows for q, k and v together
//   the paths of q, k and v -> FlashAttention  one step
//   MatMul -> Softmax -> MatMul       one step, for a backend that asks for it
//   Transpose -> MatMul of few rows   so; the MatMul reads its right side as it lay before
//   elementwise ops in a row          so; from one whose operands repeat on
//   .. -> Concat                      so; operands that are runs of the result are computed there
// Slice and Reshape are views and cost nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "graph/graph.h"
#include "graph/plan/steps.h"

namespace tcim_lite {

// Lengths that go together: checked before a run.
struct LengthRule {
  SlotLengths slot;  // valid may be kNoValue
  int64_t tokens = 0;
  int64_t context = 0;  // 0 when the graph has no cache for it
};

// Positions of tokens, or the number of a head, by which a graph reads rows of a table: those of live tokens are
// checked before a run.
struct PositionRule {
  uint32_t positions;  // value id: int32 [tokens], or [axes, 1, tokens]
  uint32_t current;    // value id of the slot's length; kNoValue: all tokens are live
  int64_t axes, tokens, rows;
};

struct Plan {
  // Where a value's bytes are: at an offset of the arena, of an input port or of an output port.
  enum class Place : uint8_t { None, Arena, Input, Output };
  struct Storage {
    Place place = Place::None;
    uint32_t port = 0;
    int64_t offset = 0;  // bytes
  };
  struct FloatInput {
    Rows rows;
    Elem elem;
    uint32_t port;
  };
  struct OutputPort {
    Rows rows;
    int64_t row_bytes;
    int64_t bytes;
    uint32_t over = kNoValue;  // an input port that the run can read and write this output over, byte for byte
  };
  // Keys or values that attention reads: [heads, context, head_dim] of one slot.
  struct Cache {
    uint32_t value;
    Elem elem;
    int64_t heads, context, head_dim;
    int64_t window;  // rows that a token sees, its own included
    uint32_t valid;  // value id of the slot's length
    size_t slot, slots;
  };

  // Before steps[next_step], this device's columns and those of the others meet in `whole`.
  struct Gather {
    size_t next_step;
    Elem elem;
    Rows own, whole;
    int64_t offset;     // of the own columns
    int64_t parts = 1;  // a row is so many vectors, each gathered by itself: [B, T, parts, n]
  };

  std::vector<StepSpec> steps;
  std::vector<uint32_t> step_values;  // by step: what the first of its ops makes, for traces; kNoValue: a copy
  std::vector<Gather> gathers;
  std::vector<Storage> storage;  // [value id]; beyond the graph's own ids come copies at its edges
  // [value id]: when its storage is last read or written. Time counts steps and gathers; -1: never.
  std::vector<int64_t> last_use;
  std::vector<int64_t> input_bytes;
  std::vector<OutputPort> outputs;
  std::vector<FloatInput> float_inputs;  // checked for NaN and infinity
  std::vector<Cache> caches;
  std::vector<LengthRule> lengths;
  std::vector<PositionRule> positions;
  uint32_t live_rows = kNoValue;
  int64_t arena_bytes = 0;
};

// What TCIM_LITE_NUMERICS asks for.
enum class Numerics {
  AsCompiled,
  Float,           // weights are dequantised, activations are not quantised, nothing is rounded between ops
  HiddenExponent,  // activations of quantised Linears take the vendor's block format, as --activations compiles it
};

// Fusions that not every backend has steps for. Turned: a Transpose before the right side of a MatMul. Products: that
// of a MatMul of few rows, a Softmax between two of them, and chains of ops of one element.
enum class Joins { None, Turned, Products };

// How a backend keeps a value.
struct OwnForm {
  int64_t bytes = 0;           // of a form of its own; 0: dense
  uint32_t over = kNoValue;    // a value of as many bytes that its step may overwrite, unless it is read later
  uint32_t within = kNoValue;  // a value with a form of its own, part of no other, that this one is part of
  int64_t offset = 0;          // bytes of it before
  uint32_t with = kNoValue;    // a value that is read while this one is written, besides those its step reads
};

// By value id of the graph. The backend sees all of the plan but the arena.
using OwnForms = std::function<std::vector<OwnForm>(const Plan&)>;

// Throws Error(Unsupported) for a legal graph there is no step for.
Plan build_plan(const Graph& graph, Numerics numerics, Joins joins = Joins::None, const OwnForms& own_forms = {});

// By TCIM_LITE_NUMERICS. Throws Error(Argument) for a value it cannot have.
Numerics wanted_numerics();

}  // namespace tcim_lite
