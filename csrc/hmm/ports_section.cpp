#include "hmm/ports_section.h"

#include <set>
#include <string_view>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "graph/axis_roles.h"
#include "graph/ops/op_check.h"
#include "hmm/cursor.h"
#include "hmm/layout.h"

namespace tcim_lite::hmm {
namespace {

constexpr uint32_t kMinPortBytes = 16;  // an empty role, two numbers, no alias

std::string describe(const Role& role) {
  return concat("role '", role.name, "', layer ", role.layer, ", slot ", role.slot);
}

void decode_port(Cursor& cursor, Value& value) {
  value.role.name = cursor.text(kMaxNameBytes, concat("the role of '", value.name, "'"));
  const std::string what = concat("layer and slot of '", value.name, "'");
  value.role.layer = cursor.get<int32_t>(what);
  value.role.slot = cursor.get<int32_t>(what);
  const uint32_t count = cursor.count(kMaxAliases, 4, concat("aliases of '", value.name, "'"));
  for (uint32_t i = 0; i < count; ++i)
    value.aliases.push_back(cursor.text(kMaxNameBytes, concat("an alias of '", value.name, "'")));
}

// Known roles must match the graph; of unknown roles only the numbers are checked.
void check_role(const Value& value, const std::string& label) {
  const Role& role = value.role;
  const bool numbered = role.layer != -1 || role.slot != -1;
  if (role.layer < -1 || role.slot < -1 || (role.name.empty() && numbered))
    fail(ErrorCode::Format, label, ": '", value.name, "' has ", describe(role),
         "; expected a name, and numbers from 0 on or -1");
  std::string_view expected;
  if (role.name == "k_cache" || role.name == "v_cache") {
    if (value.kind != ValueKind::State || role.layer < 0) expected = "a state of some layer";
  } else if (role.name == "valid_length" || role.name == "current_length" || role.name == kHeadRole) {
    if (value.kind != ValueKind::Input || value.dtype != DType::Int32 || value.shape != Shape{1})
      expected = "an input int32 [1]";
  } else if (role.name == "position_ids") {
    if (value.kind != ValueKind::Input || value.dtype != DType::Int32 || value.shape.size() != 2 || value.shape[0] != 1)
      expected = "an input int32 [1, T]";
  } else if (is_axis_role(role.name)) {
    if (value.kind != ValueKind::Input || value.dtype != DType::Int32 || value.shape.size() != 1)
      expected = "an input int32 [T]";
  } else if (role.name == kMaskRole) {
    if (value.kind != ValueKind::Input || (value.dtype != DType::Float16 && value.dtype != DType::Float32))
      expected = "a float input";
  } else if (role.name == kAxesRole) {
    const Shape& shape = value.shape;
    if (value.kind != ValueKind::Input || value.dtype != DType::Int32 || shape.size() != 3 || shape[0] != 3 ||
        shape[1] != 1)
      expected = "an input int32 [3, 1, T]";
  } else if (is_attention_mask_role(role.name)) {
    const Shape& shape = value.shape;
    const bool is_float = value.dtype == DType::Float16 || value.dtype == DType::Float32;
    if (value.kind != ValueKind::Input || !is_float || shape.size() != 4 || shape[0] != 1 || shape[1] != 1)
      expected = "a float input [1, 1, T, S]";
  }
  if (!expected.empty())
    fail(ErrorCode::Format, label, ": '", value.name, "', ", tcim_lite::describe(value), ", has ", describe(role),
         "; expected ", expected);
}

// Of the inputs or of the outputs.
void check_ports(const Graph& graph, const std::vector<uint32_t>& ids, const std::string& label) {
  std::unordered_set<std::string_view> names;
  std::set<std::tuple<std::string_view, int32_t, int32_t>> roles;
  for (const uint32_t id : ids) names.insert(graph.values[id].name);
  for (const uint32_t id : ids) {
    const Value& value = graph.values[id];
    check_role(value, label);
    if (!value.role.name.empty() && !roles.insert({value.role.name, value.role.layer, value.role.slot}).second)
      fail(ErrorCode::Format, label, ": '", value.name, "' has ", describe(value.role),
           ", which another one has already");
    for (const std::string& alias : value.aliases) {
      if (alias.empty() || !names.insert(alias).second)
        fail(ErrorCode::Format, label, ": alias '", alias, "' of '", value.name, "' is empty or taken");
    }
  }
}

}  // namespace

void decode_ports(std::span<const std::byte> bytes, const std::string& label, std::vector<Graph>& parts) {
  Cursor cursor(bytes, label);
  Graph& first = parts.front();
  using Ids = std::vector<uint32_t> Graph::*;
  constexpr std::pair<Ids, std::string_view> kKinds[] = {{&Graph::inputs, "inputs"}, {&Graph::outputs, "outputs"}};
  for (const auto& [ids, what] : kKinds) {
    const uint32_t count = cursor.count(kMaxValues, kMinPortBytes, what);
    if (count != (first.*ids).size())
      fail(ErrorCode::Format, label, " describes ", count, " ", what, ", the graph has ", (first.*ids).size());
    for (const uint32_t id : first.*ids) decode_port(cursor, first.values[id]);
  }
  cursor.end();
  for (const auto& [ids, what] : kKinds) {
    check_ports(first, first.*ids, label);
    for (Graph& part : std::span(parts).subspan(1)) {
      for (size_t port = 0; port < (first.*ids).size(); ++port) {
        const Value& like = first.values[(first.*ids)[port]];
        Value& value = part.values[(part.*ids)[port]];
        value.role = like.role;
        value.aliases = like.aliases;
      }
    }
  }
}

}  // namespace tcim_lite::hmm
