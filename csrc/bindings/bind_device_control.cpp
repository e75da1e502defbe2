#include <pybind11/stl.h>

#include <string>

#include "base/log.h"
#include "bindings/bindings.h"
#include "runtime/device_control.h"
#include "runtime/device_profile.h"

namespace tcim_lite {
namespace {

// Names and commands come from files and other processes: they may hold any bytes.
py::str to_text(const std::string& bytes) {
  return py::reinterpret_steal<py::str>(
      PyUnicode_DecodeUTF8(bytes.data(), py::ssize_t(bytes.size()), "backslashreplace"));
}

}  // namespace

void bind_device_control(py::module_& m) {
  using Release = py::call_guard<NoGil>;
  py::class_<DeviceProfile>(m, "DeviceProfile", made_by_functions(), "What the environment says about a device.")
      .def_readonly("id", &DeviceProfile::id)
      .def_property_readonly("name", [](const DeviceProfile& profile) { return to_text(profile.name); })
      .def_readonly("cores", &DeviceProfile::cores)
      .def_readonly("clock_mhz", &DeviceProfile::clock_mhz)
      .def_property_readonly("memory_total", &DeviceProfile::total_memory);

  py::class_<DeviceTelemetry>(m, "DeviceTelemetry", made_by_functions(), "A device as this process uses it.")
      .def_property_readonly("mode", [](const DeviceTelemetry& telemetry) { return int(telemetry.mode); })
      .def_readonly("clock_mhz", &DeviceTelemetry::clock_mhz)
      .def_readonly("memory_total", &DeviceTelemetry::memory_total)
      .def_readonly("memory_used", &DeviceTelemetry::memory_used)
      .def_readonly("utilization", &DeviceTelemetry::utilization);

  py::class_<ProcessUsage>(m, "ProcessUsage", made_by_functions(), "A device as some process uses it.")
      .def_readonly("pid", &ProcessUsage::pid)
      .def_property_readonly("command", [](const ProcessUsage& usage) { return to_text(usage.command); })
      .def_readonly("device_id", &ProcessUsage::device_id)
      .def_property_readonly("device_name", [](const ProcessUsage& usage) { return to_text(usage.device_name); })
      .def_property_readonly("mode", [](const ProcessUsage& usage) { return int(usage.mode); })
      .def_readonly("clock_mhz", &ProcessUsage::clock_mhz)
      .def_readonly("memory_used", &ProcessUsage::memory_used)
      .def_readonly("memory_total", &ProcessUsage::memory_total)
      .def_readonly("utilization", &ProcessUsage::utilization);

  m.def("visible_devices", &visible_devices, "The logical devices the environment declares.");
  m.def("device_telemetry", &device_telemetry, py::arg("device_id"), Release());
  m.def(
      "set_dvfs_mode", [](int device_id, int mode) { set_dvfs_mode(device_id, DvfsMode(mode)); }, py::arg("device_id"),
      py::arg("mode"), Release());
  m.def("reset_device", &reset_device, py::arg("device_id"), Release(), "Waits for queued work.");
  m.def("process_usage", &read_usage, Release(), "Every device of every process that can be seen.");
  m.def(
      "log_warning", [](const std::string& message) { log(LogLevel::Warn, message); }, py::arg("message"),
      "One line in the log.");
}

}  // namespace tcim_lite
