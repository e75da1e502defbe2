#include <pybind11/stl.h>

#include <string>

#include "bindings/bindings.h"
#include "layers/registry.h"

namespace tcim_lite {
namespace {

// The innermost frame of this thread that is not of the package: "file:line".
std::string user_frame() {
  if (Py_IsInitialized() == 0) return {};
  PyGILState_STATE state;
  try {
    state = PyGILState_Ensure();
  } catch (...) {
    for (;;) pause();  // as ~NoGil
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
  set_call_site_source(&user_frame);
}

}  // namespace tcim_lite
