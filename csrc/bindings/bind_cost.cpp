#include <pybind11/stl.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "bindings/bindings.h"
#include "graph/cost.h"
#include "runtime/device_time.h"

namespace tcim_lite {
namespace {

ChipProfile profile_of(const std::optional<std::string>& text) {
  return text ? parse_chip_profile(*text, "profile") : chip_profile();
}

ValidLength all_at(int64_t depth) {
  if (depth < 0) fail(ErrorCode::Argument, "depth=", depth, ": expected 0 or more");
  return [depth](uint32_t) { return depth; };
}

}  // namespace

void bind_cost(py::module_& m) {
  py::class_<GraphCost>(m, "GraphCost", made_by_functions(), "What a run of a graph reads and computes.")
      .def_readonly("slots", &GraphCost::slots)
      .def_readonly("tokens", &GraphCost::tokens)
      .def_property_readonly("weight_bytes", &GraphCost::weight_bytes)
      .def_property_readonly("linear_operations",
                             [](const GraphCost& cost) { return cost.operations(WorkKind::Linear); })
      .def_property_readonly("quantized", &GraphCost::quantized)
      .def("read_bytes", &GraphCost::read_bytes, py::arg("depth"), "With so many tokens in the caches.");
  m.def(
      "graph_cost",
      [](const py::bytes& section) {
        const std::string_view bytes(section);
        return cost_of_section(std::as_bytes(std::span(bytes)));
      },
      py::arg("section"), "Counts the bytes of a graph section.");
  m.def(
      "run_seconds",
      [](const std::vector<GraphCost>& parts, int64_t depth, const std::optional<std::string>& profile, double speed) {
        const ChipProfile chip = profile_of(profile);
        ChipState state = full_speed(chip);
        state.clock_mhz = int(state.clock_mhz * speed);
        return run_seconds(chip, state, parts, all_at(depth));
      },
      py::arg("parts"), py::arg("depth"), py::arg("profile") = py::none(), py::arg("speed") = 1.0,
      "Modelled seconds of the chip; `profile` is the text of one.");
  m.def(
      "modelled_power_watts", [](double utilization) { return power_watts(chip_profile(), utilization); },
      py::arg("utilization"), "Of a device that was busy for this share (0 to 1) of the last second.");
  m.def(
      "modelled_temperature_c", [](double utilization) { return temperature_c(chip_profile(), utilization); },
      py::arg("utilization"), "As modelled_power_watts.");
  m.def(
      "chip_profile",
      [](const std::optional<std::string>& text) {
        const ChipProfile chip = profile_of(text);
        using namespace py::literals;
        return py::dict("name"_a = chip.name, "cores"_a = chip.cores, "clock_mhz"_a = chip.clock_mhz,
                        "read_gb"_a = chip.read_gb, "stage_ms"_a = chip.stage_ms);
      },
      py::arg("text") = py::none(), "What the model of the chip goes by.");
}

}  // namespace tcim_lite
