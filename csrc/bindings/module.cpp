#include "bindings/bindings.h"
#include "runtime/stream.h"

PYBIND11_MODULE(core_of_main_interpreter, m) {
  using namespace tcim_lite;
  m.doc() = "The compiled core of tcim_lite; use tcim_lite.runtime.";
  register_errors();
  bind_devices(m);
  bind_device_control(m);
  bind_tensor(m);
  bind_dlpack(m);
  bind_module(m);
  bind_cost(m);
  bind_layers(m);
  bind_ops(m);
  bind_weight_formats(m);
  set_interrupt_check(&raise_signals);
  // Streams end before the interpreter does; importing starts none.
  py::module_::import("atexit").attr("register")(py::cpp_function([] { Stream::stop_all(); }, py::call_guard<NoGil>()));
}

// pybind11 before Python 3.12, and our callbacks with any, ask for the main interpreter's lock, which a thread of
// another interpreter waits for in vain while it holds its own.
extern "C" PYBIND11_EXPORT PyObject* PyInit__core() {
  if (PyInterpreterState_Get() == PyInterpreterState_Main()) return PyInit_core_of_main_interpreter();
  PyErr_SetString(PyExc_ImportError,
                  "tcim_lite works in Python's main interpreter only, this is a sub-interpreter; for mod_wsgi set "
                  "'WSGIApplicationGroup %{GLOBAL}', for uWSGI 'single-interpreter = true', or start a process");
  return nullptr;
}
