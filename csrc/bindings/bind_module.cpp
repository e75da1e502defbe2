#include <pybind11/stl.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "bindings/bindings.h"
#include "runtime/module.h"

namespace tcim_lite {
namespace {

using Release = py::call_guard<NoGil>;

std::shared_ptr<Module> load_bytes(const py::buffer& buffer, const LoadOptions& options) {
  const py::buffer_info info = buffer.request();
  py::ssize_t stride = info.itemsize;
  for (py::ssize_t axis = info.ndim; axis-- > 0; stride *= info.shape[size_t(axis)]) {
    if (info.strides[size_t(axis)] != stride)
      fail(ErrorCode::Argument, "load: the model's bytes are not contiguous; pass a copy, bytes(data)");
  }
  const std::span bytes(static_cast<const std::byte*>(info.ptr), size_t(info.size * info.itemsize));
  const NoGil no_gil;
  return Module::load(bytes, options);
}

void set_input_array(Module& module, std::string_view name, const py::array& array) {
  const ArrayView view = view_of(array, concat("set_input error: input '", name, "'"));
  const NoGil no_gil;
  module.set_input(name, view);
}

}  // namespace

void bind_module(py::module_& m) {
  py::class_<LoadOptions>(m, "LoadOptions", made_by_functions(), "How to load a model.")
      .def_static(
          "make",
          [](std::vector<int> device_ids, std::string backend, std::shared_ptr<WeightStore> weights,
             std::vector<std::string> dummies, uint64_t offset, uint64_t size,
             std::optional<std::vector<std::string>> taps) {
            return LoadOptions{
                std::move(device_ids), std::move(backend), std::move(weights), std::move(dummies), offset, size, {},
                std::move(taps)};
          },
          py::kw_only(), py::arg("device_ids"), py::arg("backend"), py::arg("weights"), py::arg("dummies"),
          py::arg("offset"), py::arg("size"), py::arg("taps") = py::none());

  shared_class<Module>(m, "Module", "A loaded model.", py::release_gil_before_calling_cpp_dtor())
      .def_property_readonly("num_inputs", py::cpp_function(&Module::num_inputs, Release()))
      .def_property_readonly("num_outputs", py::cpp_function(&Module::num_outputs, Release()))
      .def_property_readonly("custom_msg", py::cpp_function(&Module::custom_msg, Release()))
      .def_property_readonly("core_number", py::cpp_function(&Module::core_number, Release()))
      .def_property_readonly("backend_name", py::cpp_function(&Module::backend_name, Release()))
      .def_property_readonly("model_version", py::cpp_function(&Module::model_version, Release()))
      .def("set_input_array", &set_input_array, py::arg("name"), py::arg("array"), "Copies into the bound memory.")
      .def("set_input", py::overload_cast<std::string_view, const Tensor&>(&Module::set_input), py::arg("name"),
           py::arg("tensor"), Release(), "Copies a host tensor, binds a device tensor.")
      .def("output", &Module::output, py::arg("name"), py::arg("info") = py::none(), Release(), "A fresh host copy.")
      .def("run", &Module::run, py::arg("sync") = false, py::arg("rounds") = 1, Release());

  m.def("load_file", py::overload_cast<const std::string&, const LoadOptions&>(&Module::load), py::arg("path"),
        py::arg("options"), Release(), "Loads a model from a file.");
  m.def("load_bytes", &load_bytes, py::arg("data"), py::arg("options"), "Loads a model from memory.");
}

}  // namespace tcim_lite
