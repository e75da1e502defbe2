// One registration function per subject; module.cpp calls them. Thin: conversion, checks and rules are the runtime's.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <string_view>
#include <tuple>

#include "base/no_copy.h"
#include "runtime/strided_copy.h"

namespace tcim_lite {

namespace py = pybind11;

// Each runs once: without the attribute the compiler would inline what it does not need to.
[[gnu::cold]] void register_errors();
[[gnu::cold]] void bind_devices(py::module_& m);
[[gnu::cold]] void bind_device_control(py::module_& m);
[[gnu::cold]] void bind_tensor(py::module_& m);
[[gnu::cold]] void bind_dlpack(py::module_& m);
[[gnu::cold]] void bind_module(py::module_& m);
[[gnu::cold]] void bind_cost(py::module_& m);
[[gnu::cold]] void bind_layers(py::module_& m);
[[gnu::cold]] void bind_ops(py::module_& m);
[[gnu::cold]] void bind_weight_formats(py::module_& m);

// Of a daemon thread when the process ends; as Python 3.14 has it do.
[[noreturn]] inline void sleep_until_the_process_is_gone() {
  for (;;) pause();
}

// Lets other Python threads run. Unlike py::gil_scoped_release it survives the end of the interpreter: up to
// Python 3.13 a daemon thread that asks for the GIL back then is ended by unwinding its stack, which a destructor must
// not do.
class NoGil : public NoCopy {
 public:
  NoGil() : thread_(PyEval_SaveThread()) {}
  ~NoGil() {
    try {
      PyEval_RestoreThread(thread_);
    } catch (...) {
      sleep_until_the_process_is_gone();
    }
  }

 private:
  PyThreadState* thread_;
};

// For every class: functions make its objects. Python's __new__ would make one with no C++ object behind it, which
// crashes when it is used; so would copy and pickle, which call it.
inline py::custom_type_setup made_by_functions() {
  return py::custom_type_setup([](PyHeapTypeObject* made) {
    made->ht_type.tp_new = [](PyTypeObject* type, PyObject*, PyObject*) -> PyObject* {
      PyErr_Format(PyExc_TypeError, "%s: objects of this class come from functions of tcim_lite, not from the class",
                   type->tp_name);
      return nullptr;
    };
  });
}

// A class that Python gets as `Held`, with the calls that it lists in python_calls(), if it lists any. Other Python
// threads run during such a call.
template <typename Class, typename Held, typename... Extra>
py::class_<Class, Held> bound_class(py::module_& m, const char* name, const Extra&... extra) {
  py::class_<Class, Held> bound(m, name, made_by_functions(), extra...);
  if constexpr (requires { Class::python_calls(); }) {
    const auto def_call = [&](const auto& call) {
      std::apply(
          [&](auto... argument) { bound.def(call.name, call.member, py::arg(argument)..., py::call_guard<NoGil>()); },
          call.arguments);
    };
    std::apply([&](const auto&... call) { (def_call(call), ...); }, Class::python_calls());
  }
  return bound;
}

// Of a class whose objects Python shares with the runtime.
template <typename Shared, typename... Extra>
auto shared_class(py::module_& m, const char* name, const Extra&... extra) {
  return bound_class<Shared, std::shared_ptr<Shared>>(m, name, extra...);
}

// Runs Python's signal handlers; whether one raised. The caller has let the GIL go.
bool raise_signals();

// The array's memory as it lies; valid while the array lives. Throws Error(Argument), which begins with `what`, for a
// dtype without conversion.
ArrayView view_of(const py::array& array, std::string_view what);

// numpy's dtype of a runtime dtype, and back from a name such as "float16".
py::dtype numpy_dtype(DType dtype);
DType dtype_from_name(const std::string& name);

}  // namespace tcim_lite
