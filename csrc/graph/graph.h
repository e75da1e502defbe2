// A compiled graph: a flat list of typed ops in SSA form over values of fixed shape and dtype.
// Plain data, immutable once validated; shared by every module loaded from the same file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/dtype.h"
#include "base/shape.h"
#include "graph/weight_format.h"

namespace tcim_lite {

constexpr uint32_t kNoValue = 0xffffffffu;

enum class ValueKind : uint8_t {
  Input = 0,         // read-only graph input
  State = 1,         // graph input that one op reads and updates in place
  Weight = 2,        // constant from the weight table
  Intermediate = 3,  // produced by one op; graph outputs are intermediates listed in Graph::outputs
};

// What an input or output is for (docs/hmm-format.md section 5.2), such as the keys of layer 3 of batch slot 0.
struct Role {
  std::string name;    // "embeddings", "valid_length", "k_cache", ...; empty: the file does not say
  int32_t layer = -1;  // of the model; -1: none
  int32_t slot = -1;   // of the batch; -1: none
};

struct Value {
  std::string name;
  ValueKind kind = ValueKind::Intermediate;
  DType dtype = DType::Float16;
  WeightFormat format = WeightFormat::Dense;  // of a weight; Dense otherwise
  Shape shape;                                // logical; of a packed weight [N, K] or [E, N, K] without padding
  uint32_t weight = kNoValue;                 // index into the weight table, for kind Weight
  Role role = {};                             // of an input or output
  std::vector<std::string> aliases = {};      // other names that an input or output answers to
};

using AttributeValue = std::variant<int64_t, double, std::string>;

enum class OpKind : uint8_t {
#define TCIM_LITE_OP(name, version) name,
#include "graph/ops.def"
};

struct Op {
  OpKind kind;
  std::vector<uint32_t> inputs;   // value ids
  std::vector<uint32_t> outputs;  // value ids
  std::vector<std::pair<std::string, AttributeValue>> attributes;

  const AttributeValue* find(std::string_view key) const;  // null when it is not there
  int64_t attribute(std::string_view key, int64_t fallback) const;
  double attribute(std::string_view key, double fallback) const;
};

struct Graph {
  std::string name;
  std::vector<Value> values;
  std::vector<Op> ops;            // in execution order
  std::vector<uint32_t> inputs;   // inputs and states, in API order
  std::vector<uint32_t> outputs;  // in API order, taps last
  size_t taps = 0;                // outputs that were asked for at load and that the API does not count (graph/taps.h)
  // The int32 [1] input that says how many rows of axis 1 are real; rows beyond need not be computed, and are zero in
  // graph outputs. kNoValue: all rows are real.
  uint32_t live_rows = kNoValue;
};

std::string_view name_of(OpKind kind);
uint16_t version_of(OpKind kind);  // the newest; older ones are read too
std::optional<OpKind> find_op(std::string_view name);

// Throws Error(Format) naming the op and value at fault: wrong arity, shape or dtype, a value used before it is
// produced (which covers cycles), produced twice, an output that no op produces. The rules of the ops: graph/ops.
void validate(const Graph& graph);

}  // namespace tcim_lite
