#include "graph/parts.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "base/error.h"
#include "graph/ops/op_check.h"
#include "graph/ops/op_definition.h"

namespace tcim_lite {
namespace {

template <typename... Parts>
[[noreturn]] void reject(const Parts&... parts) {
  fail(ErrorCode::Format, parts..., "; compile the model again");
}

// One kind of port, inputs or outputs, over all parts.
void check_ports(std::span<const Graph> parts, std::vector<uint32_t> Graph::* ids, const std::vector<int32_t>& axes,
                 std::string_view what) {
  const std::vector<uint32_t>& first = parts[0].*ids;
  for (size_t rank = 1; rank < parts.size(); ++rank) {
    if ((parts[rank].*ids).size() == first.size()) continue;
    reject("part ", rank, " has ", (parts[rank].*ids).size(), " ", what, "s, part 0 has ", first.size());
  }
  if (axes.size() != first.size()) {
    reject("the split section has ", axes.size(), " axes of ", what, "s, the graphs have ", first.size(), " ", what,
           "s");
  }
  for (size_t port = 0; port < first.size(); ++port) {
    const Value& like = parts[0].values[first[port]];
    const int32_t axis = axes[port];
    if (axis < kWhole || axis >= int32_t(like.shape.size()))
      reject(what, " '", like.name, "', ", describe(like), ", is split on axis ", axis, ", expected -1 to ",
             int64_t(like.shape.size()) - 1);
    if (axis != kWhole && like.dtype == DType::Int32)
      reject(what, " '", like.name, "' is int32 and split on axis ", axis, ", expected a whole one on every device");
    for (size_t rank = 1; rank < parts.size(); ++rank) {
      const Value& value = parts[rank].values[(parts[rank].*ids)[port]];
      if (value.name != like.name)
        reject(what, " ", port, " is '", like.name, "' in part 0, '", value.name, "' in part ", rank);
      Shape shape = value.shape;
      if (axis != kWhole && shape.size() == like.shape.size()) shape[size_t(axis)] = like.shape[size_t(axis)];
      if (value.kind != like.kind || value.dtype != like.dtype || shape != like.shape)
        reject(what, " '", like.name, "' is ", describe(like), " in part 0 and ", describe(value), " in part ", rank,
               "; parts may differ only along the split axis, which is ", axis);
    }
  }
}

size_t position_of(const std::vector<uint32_t>& ids, uint32_t id) {
  return size_t(std::find(ids.begin(), ids.end(), id) - ids.begin());
}

// live_rows counts rows of axis 1, over all devices: what has live rows has them whole on each.
void check_live_cuts(const Graph& part, const std::vector<uint32_t>& ids, const std::vector<int32_t>& axes,
                     std::string_view what) {
  const std::vector<bool> is_carried = carried_values(part);
  for (size_t port = 0; port < ids.size(); ++port) {
    const Value& value = part.values[ids[port]];
    const bool has_live_rows = value.kind != ValueKind::State && value.shape.size() >= 3 && !is_carried[ids[port]];
    if (!has_live_rows || axes[port] == kWhole || axes[port] > 1) continue;
    reject(what, " '", value.name, "', ", describe(value), ", has live rows and is split on axis ", axes[port],
           ", expected -1 or more than 1");
  }
}

void check_live_rows(std::span<const Graph> parts, const Split& split) {
  const auto position = [](const Graph& part) { return position_of(part.inputs, part.live_rows); };
  for (size_t rank = 1; rank < parts.size(); ++rank) {
    if (position(parts[rank]) != position(parts[0]))
      reject("live_rows of part ", rank, " is another input than that of part 0");
  }
  if (parts[0].live_rows == kNoValue) return;
  check_live_cuts(parts[0], parts[0].inputs, split.inputs, "input");
  check_live_cuts(parts[0], parts[0].outputs, split.outputs, "output");
}

void check_gathers(std::span<const Graph> parts) {
  const std::vector<const Op*> first = all_gathers(parts[0]);
  std::vector<int64_t> columns(first.size());  // gathered so far
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    const Graph& part = parts[rank];
    const std::vector<const Op*> gathers = all_gathers(part);
    if (gathers.size() != first.size())
      reject("part ", rank, " has ", gathers.size(), " AllGather ops, part 0 has ", first.size());
    for (size_t i = 0; i < gathers.size(); ++i) {
      const Value& x = part.values[gathers[i]->inputs[0]];
      const Value& y = part.values[gathers[i]->outputs[0]];
      const Value& like = parts[0].values[first[i]->outputs[0]];
      if (y.dtype != like.dtype || y.shape != like.shape)
        reject("AllGather ", i, " gives '", like.name, "', ", describe(like), ", in part 0 and '", y.name, "', ",
               describe(y), ", in part ", rank);
      if (gathers[i]->attribute("offset", int64_t{0}) != columns[i])
        reject("AllGather ", i, " ('", y.name, "') of part ", rank, " begins at column ",
               gathers[i]->attribute("offset", int64_t{0}), ", expected ", columns[i],
               ", where the part before it ends");
      columns[i] += x.shape.back();
      if (rank + 1 == parts.size() && columns[i] != y.shape.back())
        reject("AllGather ", i, " ('", y.name, "'): the parts give ", columns[i], " columns of ", y.shape.back());
    }
  }
}

}  // namespace

std::vector<const Op*> all_gathers(const Graph& graph) {
  std::vector<const Op*> gathers;
  for (const Op& op : graph.ops) {
    if (op.kind == OpKind::AllGather) gathers.push_back(&op);
  }
  return gathers;
}

void validate_parts(std::span<const Graph> parts, const Split& split) {
  check_ports(parts, &Graph::inputs, split.inputs, "input");
  check_ports(parts, &Graph::outputs, split.outputs, "output");
  check_live_rows(parts, split);
  check_gathers(parts);
}

}  // namespace tcim_lite
