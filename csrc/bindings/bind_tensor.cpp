#include <pybind11/stl.h>

#include <memory>

#include "base/error.h"
#include "bindings/bindings.h"
#include "runtime/tensor.h"

namespace tcim_lite {
namespace {

using Release = py::call_guard<NoGil>;

py::tuple to_tuple(const Shape& shape) {
  py::tuple tuple(shape.size());
  for (size_t i = 0; i < shape.size(); ++i) tuple[i] = shape[i];
  return tuple;
}

// An array over host memory that keeps it alive. Never memory of a device or one that a later run writes (C-11).
py::array to_numpy(const Tensor& tensor) {
  ArrayMemory array;
  {
    const NoGil no_gil;
    array = tensor.to_array();
  }
  const Tensor& host = array.tensor;
  auto owner = std::make_unique<std::shared_ptr<Buffer>>(host.buffer());
  py::capsule keep(owner.get(), [](void* pointer) { delete static_cast<std::shared_ptr<Buffer>*>(pointer); });
  owner.release();
  return py::array(numpy_dtype(host.info().dtype), host.info().shape, byte_strides(host.info()), array.data, keep);
}

Tensor tensor_from_array(const TensorInfo& info, const py::array& array) {
  const ArrayView view = view_of(array, "Tensor");
  const NoGil no_gil;
  return Tensor::from_array(info, view);
}

bool matches(const TensorInfo& a, const TensorInfo& b) {
  return a.dtype == b.dtype && a.api_shape() == b.api_shape() && a.format == b.format;
}

}  // namespace

void bind_tensor(py::module_& m) {
  py::class_<TensorInfo>(m, "TensorInfo", made_by_functions(), "Dtype, shape, strides, format and place of a tensor.")
      .def_static(
          "make",
          [](const std::string& dtype, Shape shape, int device_id, std::string name) {
            return TensorInfo::dense(dtype_from_name(dtype), std::move(shape), device_id, std::move(name))
                .astype(dtype_from_name(dtype));
          },
          py::arg("dtype"), py::arg("shape"), py::arg("device_id") = kHost, py::arg("name") = "")
      .def_property_readonly("dtype", [](const TensorInfo& info) { return std::string(name_of(info.dtype)); })
      .def_property_readonly("shape", [](const TensorInfo& info) { return to_tuple(info.api_shape()); })
      .def_property_readonly("strides", [](const TensorInfo& info) { return to_tuple(info.api_strides()); })
      .def_property_readonly("format", [](const TensorInfo& info) { return std::string(name_of(info.format)); })
      .def_readonly("device_id", &TensorInfo::device_id)
      .def_readonly("name", &TensorInfo::name)
      .def_property_readonly("mem_size", &TensorInfo::bytes)
      .def("ascontiguous", &TensorInfo::ascontiguous)
      .def(
          "astype",
          [](const TensorInfo& info, const std::string& dtype) { return info.astype(dtype_from_name(dtype)); },
          py::arg("dtype"))
      .def("is_match", &matches, py::arg("other"));

  bound_class<Tensor, std::unique_ptr<Tensor>>(m, "Tensor", "Shared memory and what it looks like.")
      .def_static(
          "allocate", [](const TensorInfo& info) { return Tensor::allocate(info); }, py::arg("info"), Release(),
          "Zeroed storage where the info lives.")
      .def_static("from_array", &tensor_from_array, py::arg("info"), py::arg("array"), "A host copy of the array.")
      .def_property_readonly("info", &Tensor::info, py::return_value_policy::copy)
      .def_property_readonly("has_storage", &Tensor::has_storage)
      .def("numpy", &to_numpy, "An array that no later run touches.")
      .def(
          "astype",
          [](const Tensor& tensor, const std::string& dtype) { return tensor.astype(dtype_from_name(dtype)); },
          py::arg("dtype"), Release())
      .def(
          "is_same",
          [](const Tensor& a, const Tensor& b) { return a.buffer() == b.buffer() && a.offset() == b.offset(); },
          py::arg("other"), "Whether both are views of the same memory.");
}

}  // namespace tcim_lite
