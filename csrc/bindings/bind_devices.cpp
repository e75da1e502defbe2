#include <pybind11/stl.h>

#include "bindings/bindings.h"
#include "runtime/devices.h"
#include "runtime/module.h"
#include "runtime/stream.h"
#include "runtime/weight_store.h"

namespace tcim_lite {

void bind_devices(py::module_& m) {
  m.def("version", &version_text, "The emulated version, then the emulator's own.");
  m.def(
      "device_ids",
      [] {
        std::vector<int> ids;
        for (const DeviceProfile& profile : visible_devices()) ids.push_back(profile.id);
        return ids;
      },
      "The logical devices the environment declares.");
  m.def("device_count", &count_visible_devices, "How many that is.");
  m.def("resolve_backend", &resolve_backend, py::arg("name"), "The canonical backend name.");
  m.def("device_memory_used", &device_memory_used, py::arg("device_id"), "Bytes in use on a device.");
  m.def("describe_model", &describe_model, py::arg("path"), py::call_guard<NoGil>(), "Text about a model file.");

  py::class_<WeightStore, std::shared_ptr<WeightStore>>(m, "WeightStore", "Weights shared between modules.")
      .def(py::init<>());
  py::class_<Stream, std::shared_ptr<Stream>>(m, "Stream", "A FIFO of runs.")
      .def(py::init(&Stream::create), py::arg("auto_yield") = false)
      .def_property_readonly("auto_yield", &Stream::auto_yield);
}

}  // namespace tcim_lite
