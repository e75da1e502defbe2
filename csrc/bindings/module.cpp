#include "bindings/bindings.h"
#include "runtime/stream.h"

PYBIND11_MODULE(_core, m) {
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
