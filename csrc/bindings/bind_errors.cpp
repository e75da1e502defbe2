#include "base/error.h"
#include "bindings/bindings.h"

namespace tcim_lite {
namespace {

const char* class_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::Internal:
      return "TcimError";
    case ErrorCode::Format:
      return "HmmFormatError";
    case ErrorCode::State:
      return "StateError";
    case ErrorCode::Argument:
      return "ArgumentError";
    case ErrorCode::Shape:
      return "ShapeError";
    case ErrorCode::UnknownName:
      return "UnknownNameError";
    case ErrorCode::Device:
      return "DeviceError";
    case ErrorCode::Unsupported:
      return "UnsupportedError";
  }
  return "TcimError";
}

}  // namespace

// The classes carry their status themselves (tcim_lite/errors.py).
void register_errors() {
  py::register_local_exception_translator([](std::exception_ptr pointer) {
    if (pointer == nullptr) return;
    try {
      std::rethrow_exception(pointer);
    } catch (const Error& error) {
      const py::object type = py::module_::import("tcim_lite.errors").attr(class_name(error.code()));
      PyErr_SetString(type.ptr(), error.what());
    }
  });
}

}  // namespace tcim_lite
