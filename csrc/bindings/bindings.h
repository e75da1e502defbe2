// One registration function per subject; module.cpp calls them. Thin: conversion, checks and rules are the runtime's.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>

#include "runtime/strided_copy.h"

namespace tcim_lite {

namespace py = pybind11;

void register_errors();
void bind_devices(py::module_& m);
void bind_tensor(py::module_& m);
void bind_module(py::module_& m);

// The array's memory as it lies; valid while the array lives. Throws Error(Argument) for a dtype without conversion.
ArrayView view_of(const py::array& array);

// numpy's dtype of a runtime dtype, and back from a name such as "float16".
py::dtype numpy_dtype(DType dtype);
DType dtype_from_name(const std::string& name);

}  // namespace tcim_lite
