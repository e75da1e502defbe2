#include <pybind11/stl.h>

#include <exception>
#include <string>
#include <vector>

#include "bindings/bindings.h"
#include "layers/clock/clock.h"
#include "layers/faults/fired.h"
#include "layers/registry.h"
#include "layers/strict/catalogue.h"
#include "layers/strict/report.h"

namespace tcim_lite {
namespace {

// The innermost frame of this thread that is not of the package: "file:line".
std::string user_frame() {
  if (Py_IsInitialized() == 0) return {};
  PyGILState_STATE state;
  try {
    state = PyGILState_Ensure();
  } catch (...) {
    sleep_until_the_process_is_gone();  // as ~NoGil
  }
  std::string place;
  try {
    const py::error_scope keep;
    static const std::string package = [] {
      const auto file = py::module_::import("tcim_lite").attr("__file__").cast<std::string>();
      return file.substr(0, file.rfind('/') + 1);
    }();
    PyFrameObject* current = PyEval_GetFrame();
    py::object frame = py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(current));
    while (frame && !frame.is_none()) {
      auto file = frame.attr("f_code").attr("co_filename").cast<std::string>();
      if (!file.starts_with(package)) {
        place = file + ":" + std::to_string(frame.attr("f_lineno").cast<int>());
        break;
      }
      frame = frame.attr("f_back");
    }
  } catch (const std::exception&) {
    place.clear();
  }
  PyGILState_Release(state);
  return place;
}

}  // namespace

void bind_layers(py::module_& m) {
  using Release = py::call_guard<NoGil>;
  m.def("known_layers", &layers::known, "The layers there are.");
  m.def("active_layers", &layers::active, Release(), "Those that listen.");
  m.def("enable_layer", &layers::enable, py::arg("name"), py::arg("options"), Release());
  m.def("disable_layer", &layers::disable, py::arg("name"), Release());
  m.def("clock_mode", &layers::clock_mode, "off, virtual or realtime.");
  m.def("virtual_now_ns", &layers::virtual_now_ns, "The virtual clock.");
  m.def("pass_virtual_time", &layers::pass_virtual_time, py::arg("seconds"), "The host does something else.");
  m.def("modelled_busy_ns", &layers::modelled_busy_ns, py::arg("device_id"), "How long a device has run things.");
  using layers::Finding, layers::FindingKind;
  py::class_<FindingKind>(m, "FindingKind", made_by_functions(), "A finding that strict mode can make.")
      .def_readonly("code", &FindingKind::code)
      .def_readonly("title", &FindingKind::title)
      .def_readonly("fault", &FindingKind::fault)
      .def_readonly("rule", &FindingKind::rule)
      .def_readonly("why", &FindingKind::why)
      .def_readonly("example", &FindingKind::example)
      .def_readonly("fix", &FindingKind::fix);
  py::class_<Finding>(m, "Finding", made_by_functions(), "One that was made.")
      .def_readonly("code", &Finding::code)
      .def_readonly("detail", &Finding::detail)
      .def_readonly("site", &Finding::site)
      .def_readonly("message", &Finding::message);
  m.def(
      "strict_catalogue",
      [] { return std::vector<FindingKind>(layers::catalogue().begin(), layers::catalogue().end()); },
      "Every finding there is.");
  m.def("take_findings", &layers::take_findings, "What strict mode found since the last call.");
  using layers::FiredFault;
  py::class_<FiredFault>(m, "FiredFault", made_by_functions(), "A fault that was injected.")
      .def_readonly("rule", &FiredFault::rule)
      .def_readonly("place", &FiredFault::place)
      .def_readonly("kind", &FiredFault::kind)
      .def_readonly("call", &FiredFault::call)
      .def_readonly("device", &FiredFault::device)
      .def_readonly("text", &FiredFault::text);
  m.def("take_fired_faults", &layers::take_fired_faults, "What was injected since the last call.");
  set_call_site_source(&user_frame);
}

}  // namespace tcim_lite
