#include <exception>
#include <string_view>

#include "base/error.h"
#include "bindings/bindings.h"
#include "runtime/stream.h"

namespace tcim_lite {
namespace {

void raise(const Error& error) {
  const py::module_ errors = py::module_::import("tcim_lite.errors");
  const py::object type = errors.attr(class_of(error.code()));
  const py::object status = errors.attr(class_of(error.status_code())).attr("status");
  // A path in the message may hold any bytes.
  const std::string_view text = error.what();
  const auto message = py::reinterpret_steal<py::object>(
      PyUnicode_DecodeUTF8(text.data(), py::ssize_t(text.size()), "backslashreplace"));
  if (message) PyErr_SetObject(type.ptr(), type(message, status).ptr());
}

// Of Python's own; others, which it knows no better, may be waited for.
bool in_daemon_thread() {
  const py::module_ threading = py::module_::import("threading");
  const py::object thread = threading.attr("current_thread")();
  return thread.attr("daemon").cast<bool>() && !py::isinstance(thread, threading.attr("_DummyThread"));
}

}  // namespace

bool raise_signals() {
  PyGILState_STATE state;
  try {
    state = PyGILState_Ensure();
  } catch (...) {
    sleep_until_the_process_is_gone();  // as ~NoGil
  }
  const bool raised = PyErr_CheckSignals() != 0;
  PyGILState_Release(state);
  return raised;
}

// The classes carry their status themselves (tcim_lite/errors.py); a finding has that of the failure it tells of.
void register_errors() {
  py::register_local_exception_translator([](std::exception_ptr pointer) {
    if (pointer == nullptr) return;
    try {
      std::rethrow_exception(pointer);
    } catch (const Interrupted&) {
      // The handler's exception is set: raise_signals() found it.
    } catch (const ProcessEnding& error) {
      // Python ends such a thread in a moment. If that is while it prints a traceback, stderr stays locked and the
      // process aborts.
      if (in_daemon_thread()) {
        const NoGil no_gil;
        sleep_until_the_process_is_gone();
      }
      raise(error);
    } catch (const Error& error) {
      raise(error);
    }
  });
}

}  // namespace tcim_lite
