#include <pybind11/stl.h>

#include "base/machine_limits.h"
#include "base/thread_pool.h"
#include "bindings/bindings.h"
#include "runtime/devices.h"
#include "runtime/module.h"
#include "runtime/stream.h"
#include "runtime/weight_store.h"

namespace tcim_lite {
namespace {

// Keys are the fields of tcim_lite.bench.MachineLimits.
py::dict machine_limits(size_t model_bytes) {
  const int threads = ThreadPool::instance().size();
  double read = 0, read_one = 0, read_model = 0, int8 = 0, int8_tile = 0, fp32 = 0, core_to_core = 0;
  {
    const NoGil released;
    read = read_bandwidth(threads);
    read_one = read_bandwidth(1);
    if (model_bytes > 0) read_model = read_bandwidth(threads, model_bytes);
    int8 = int8_peak(threads);
    int8_tile = int8_tile_peak(threads);
    fp32 = fp32_peak(threads);
    if (threads > 1) core_to_core = core_to_core_ns();
  }
  using namespace py::literals;
  return py::dict("threads"_a = threads, "read"_a = read, "read_one"_a = read_one, "read_model"_a = read_model,
                  "int8"_a = int8, "int8_instruction"_a = int8_instruction(), "int8_tile"_a = int8_tile,
                  "fp32"_a = fp32, "core_to_core_ns"_a = core_to_core);
}

}  // namespace

void bind_devices(py::module_& m) {
  m.def("version", &version_text, "The emulated version, the emulator's own, the time of the build.");
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
  m.def("machine_limits", &machine_limits, py::arg("model_bytes"), "Measures the roofs of this machine.");
  m.def("describe_model", &describe_model, py::arg("path"), py::call_guard<NoGil>(), "Text about a model file.");

  shared_class<WeightStore>(m, "WeightStore", "Weights shared between modules.").def_static("make", [] {
    return std::make_shared<WeightStore>();
  });
  shared_class<Stream>(m, "Stream", "A FIFO of runs.")
      .def_static("make", &Stream::create, py::arg("auto_yield") = false)
      .def_property_readonly("auto_yield", &Stream::auto_yield);
}

}  // namespace tcim_lite
