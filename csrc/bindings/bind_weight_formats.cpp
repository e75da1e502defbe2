#include <pybind11/stl.h>

#include <string>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "graph/weight_format.h"

namespace tcim_lite {
namespace {

py::list weight_layouts() {
  py::list layouts;
  for (const WeightLayout& layout : kWeightLayouts) {
    py::dict row;
    row["name"] = std::string(layout.name);
    row["dtype"] = std::string(name_of(layout.dtype));
    row["line_inputs"] = layout.line_inputs;
    row["scale_inputs"] = layout.scale_inputs;
    row["scale_dtype"] = std::string(name_of(layout.scale_dtype));
    row["unit_inputs"] = layout.unit_inputs;
    row["code_offset"] = layout.code_offset;
    layouts.append(row);
  }
  return layouts;
}

py::tuple packed_conv_least() { return py::make_tuple(kPackedConvTerms, kPackedConvOutputs, kPackedConvPixels); }

using Places = std::vector<std::pair<int64_t, int64_t>>;

std::pair<int64_t, Places> packed_block(int code, int64_t inputs) {
  const WeightLayout layout = kWeightLayouts[size_t(code)];
  Places places;
  if (layout.scale_inputs > 0) {
    for (int64_t group = 0; group < inputs / layout.scale_inputs; ++group)
      places.emplace_back(codes_offset(layout, group), scales_offset(layout, inputs, group));
  }
  return {block_bytes(layout, inputs), places};
}

}  // namespace

void bind_weight_formats(py::module_& m) {
  m.def("weight_layouts", &weight_layouts, "The rows of graph/weight_format.h in order of code; for tests.");
  m.def("packed_conv_least", &packed_conv_least,
        "Terms, outputs and pixels from which the float weights of a Conv are packed; for tests.");
  m.def("packed_block", &packed_block, py::arg("code"), py::arg("inputs"),
        "Bytes of a block of a format, and where the codes and scales of each group begin; for tests.");
}

}  // namespace tcim_lite
