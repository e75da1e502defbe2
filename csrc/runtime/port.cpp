#include "runtime/port.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <variant>

#include "base/error.h"
#include "graph/axis_roles.h"
#include "graph/taps.h"
#include "runtime/yuv.h"

namespace tcim_lite {
namespace {

constexpr std::string_view kFormatSuffix = ".hmcc.format";

std::string_view without_format_suffix(std::string_view name) {
  if (name.ends_with(kFormatSuffix)) name.remove_suffix(kFormatSuffix.size());
  return name;
}

// The other spelling of a name that ends in "_batch<n>" (C-18), or nothing.
std::string with_batch_underscore(std::string_view name) {
  constexpr std::string_view kBatch = "_batch";
  const size_t at = name.rfind(kBatch);
  if (at == std::string_view::npos || at + kBatch.size() == name.size() ||
      name.find_first_not_of("0123456789", at + kBatch.size()) != std::string_view::npos)
    return {};
  return std::string(name.substr(0, at)) + "_batch_" + std::string(name.substr(at + kBatch.size()));
}

// What port `index` looks like as one tensor.
TensorInfo logical_info(std::span<const Graph> parts, std::vector<uint32_t> Graph::* ids, size_t index, int axis,
                        const std::vector<int>& device_ids) {
  const Value& first = parts[0].values[(parts[0].*ids)[index]];
  Shape shape = first.shape;
  if (parts.size() == 1) return TensorInfo::dense(first.dtype, shape, device_ids[0], first.name);
  Placement placement{device_ids, axis, {}};
  if (axis != kWhole) {
    for (const Graph& part : parts) placement.extents.push_back(part.values[(part.*ids)[index]].shape[size_t(axis)]);
    shape[size_t(axis)] = std::accumulate(placement.extents.begin(), placement.extents.end(), int64_t{0});
  }
  TensorInfo info = TensorInfo::dense(first.dtype, shape, device_ids[0], first.name);
  info.placement = std::make_shared<const Placement>(std::move(placement));
  return info;
}

// Images that the resizer reads have their format and sizes, by which programs know how to fill them.
void describe_images(const Graph& graph, std::vector<Port>& inputs) {
  for (const Op& op : graph.ops) {
    if (op.kind != OpKind::Resizer) continue;
    for (size_t index = 0; index < inputs.size(); ++index)
      if (graph.inputs[index] == op.inputs[0])
        inputs[index].info =
            as_image(inputs[index].info, op.attribute("width", int64_t{1}), op.attribute("height", int64_t{1}),
                     format_of(std::get<std::string>(*op.find("format"))));
  }
}

// Whether a run may take what the run before gave: an output has the form of this input, or the other way round.
bool is_handed_on(const Graph& graph, const Value& value) {
  const std::vector<uint32_t>& others = value.kind == ValueKind::Input ? graph.outputs : graph.inputs;
  return std::any_of(others.begin(), others.end(), [&](uint32_t id) {
    const Value& other = graph.values[id];
    return other.kind != ValueKind::State && other.dtype == value.dtype && other.shape == value.shape;
  });
}

}  // namespace

PortTable::PortTable(std::span<const Graph> parts, std::vector<uint32_t> Graph::* ids, const std::vector<int32_t>& axes,
                     const std::vector<int>& device_ids) {
  const size_t count = (parts[0].*ids).size();
  counted_ = ids == &Graph::outputs ? count - parts[0].taps : count;
  ports_.reserve(count);
  for (size_t index = 0; index < count; ++index) {
    Port port;
    port.info = logical_info(parts, ids, index, parts.size() == 1 ? kWhole : axes[index], device_ids);
    const Value& value = parts[0].values[(parts[0].*ids)[index]];
    if (value.kind == ValueKind::State)
      port.content = Content::Zero;
    else if (is_handed_on(parts[0], value))
      port.content = Content::HandedOn;
    port.hides = value.role.name == kMaskRole || is_attention_mask_role(value.role.name);
    if (index >= counted_) port.info.name = concat(kTapPrefix, port.info.name);
    by_name_.emplace(port.name(), uint32_t(index));
    ports_.push_back(std::move(port));
  }
  if (ids == &Graph::inputs) describe_images(parts[0], ports_);
  // After the compiled names, so that an alias never hides one.
  for (uint32_t index = 0; index < counted_; ++index) {
    const Value& value = parts[0].values[(parts[0].*ids)[index]];
    by_name_.emplace(without_format_suffix(value.name), index);
    for (const std::string& alias : value.aliases) by_name_.emplace(alias, index);
  }
}

Port* PortTable::find(std::string_view name) {
  auto found = by_name_.find(name);
  if (found == by_name_.end()) {
    name = without_format_suffix(name);
    found = by_name_.find(name);
  }
  if (found == by_name_.end()) found = by_name_.find(with_batch_underscore(name));
  return found == by_name_.end() ? nullptr : &ports_[found->second];
}

std::string PortTable::names() const {
  constexpr size_t kShown = 8;
  std::string text;
  for (size_t i = 0; i < std::min(kShown, counted_); ++i) text += (i ? ", " : "") + ports_[i].name();
  if (counted_ > kShown) text += " and " + std::to_string(counted_ - kShown) + " more";
  return text;
}

}  // namespace tcim_lite
