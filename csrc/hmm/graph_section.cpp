#include "hmm/graph_section.h"

#include <algorithm>

#include "base/error.h"
#include "hmm/cursor.h"
#include "hmm/layout.h"

namespace tcim_lite::hmm {
namespace {

// Sizes of the shortest legal value and op; the counts cannot exceed the bytes present divided by these.
constexpr uint32_t kMinValueBytes = 21;
constexpr uint32_t kMinOpBytes = 17;

uint8_t code(Cursor& cursor, const std::string& name, std::string_view what, uint8_t low, uint8_t high) {
  const auto code = cursor.get<uint8_t>(concat("the ", what, " of value '", name, "'"));
  if (code < low || code > high)
    fail(ErrorCode::Format, cursor.label(), ": value '", name, "' has ", what, " ", int{code}, ", known are ", int{low},
         " to ", int{high});
  return code;
}

Value decode_value(Cursor& cursor) {
  Value value;
  value.name = cursor.text(kMaxNameBytes, "a value's name");
  value.kind = ValueKind(code(cursor, value.name, "kind", 0, 3));
  value.dtype = DType(code(cursor, value.name, "dtype", 1, 8));
  value.format = WeightFormat(code(cursor, value.name, "format", 0, kWeightFormats - 1));
  const uint32_t rank = cursor.get<uint8_t>(concat("the rank of value '", value.name, "'"));
  if (rank < 1 || rank > kMaxRank)
    fail(ErrorCode::Format, cursor.label(), ": value '", value.name, "' has rank ", rank, ", expected 1 to ", kMaxRank);
  for (uint32_t axis = 0; axis < rank; ++axis)
    // An extent beyond int64 stays out of range for validate().
    value.shape.push_back(int64_t(std::min<uint64_t>(
        cursor.get<uint64_t>(concat("the shape of value '", value.name, "'")), uint64_t{INT64_MAX})));
  value.weight = cursor.get<uint32_t>(concat("the weight of value '", value.name, "'"));
  return value;
}

AttributeValue decode_attribute(Cursor& cursor, const std::string& what) {
  const auto type = cursor.get<uint8_t>(what);
  if (type == 0) return cursor.get<int64_t>(what);
  if (type == 1) return cursor.get<double>(what);
  if (type == 2) return cursor.text(kMaxNameBytes, what);
  fail(ErrorCode::Format, cursor.label(), ": ", what, " has type ", int{type}, ", known are 0 to 2");
}

Op decode_op(Cursor& cursor) {
  Op op;
  const std::string name = cursor.text(kMaxNameBytes, "an op's name");
  const auto version = cursor.get<uint16_t>(concat("the version of op ", name));
  const std::optional<OpKind> kind = find_op(name);
  if (!kind || version == 0 || version > version_of(*kind))
    fail(ErrorCode::Format, cursor.label(), ": op '", name, "' version ", version, " is unknown, ",
         kind ? concat("this reader knows versions up to ", version_of(*kind)) : "as is any op of this name",
         "; update tcim_lite or compile again");
  op.kind = *kind;
  const auto attribute_count = cursor.get<uint16_t>(concat("the attributes of op ", name));
  if (attribute_count > kMaxAttributes)
    fail(ErrorCode::Format, cursor.label(), ": op ", name, " has ", attribute_count, " attributes, the limit is ",
         kMaxAttributes);
  const auto input_count = cursor.get<uint32_t>(concat("the inputs of op ", name));
  const auto output_count = cursor.get<uint32_t>(concat("the outputs of op ", name));
  op.inputs = cursor.ids(input_count, concat("the inputs of op ", name));
  op.outputs = cursor.ids(output_count, concat("the outputs of op ", name));
  for (uint32_t i = 0; i < attribute_count; ++i) {
    std::string key = cursor.text(kMaxNameBytes, concat("an attribute of op ", name));
    const std::string what = concat("attribute '", key, "' of op ", name);
    for (const auto& [other, value] : op.attributes) {
      if (other == key) fail(ErrorCode::Format, cursor.label(), ": ", what, " appears twice");
    }
    op.attributes.emplace_back(std::move(key), decode_attribute(cursor, what));
  }
  return op;
}

}  // namespace

Graph decode_graph(std::span<const std::byte> bytes, const std::string& label) {
  Cursor cursor(bytes, label);
  Graph graph;
  graph.name = cursor.text(kMaxNameBytes, "the graph's name");
  graph.live_rows = cursor.get<uint32_t>("live_rows");
  graph.values.resize(cursor.count(kMaxValues, kMinValueBytes, "values"));
  for (Value& value : graph.values) value = decode_value(cursor);
  const uint32_t op_count = cursor.count(kMaxOps, kMinOpBytes, "ops");
  graph.ops.reserve(op_count);
  for (uint32_t i = 0; i < op_count; ++i) graph.ops.push_back(decode_op(cursor));
  graph.inputs = cursor.ids(cursor.count(kMaxValues, 4, "inputs"), "the list of inputs");
  graph.outputs = cursor.ids(cursor.count(kMaxValues, 4, "outputs"), "the list of outputs");
  cursor.end();
  return graph;
}

}  // namespace tcim_lite::hmm
