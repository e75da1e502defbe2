// The one exception of the core. bindings/ maps codes to Python classes, facade/ to Status; messages say who, what was
// got, what was expected and what to try.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

namespace tcim_lite {

enum class ErrorCode {
  Internal,     // a mistake of this project
  Format,       // HmmFormatError
  State,        // StateError: Status.UNINITIALIZED
  Argument,     // ArgumentError: Status.INVALID_ARGUMENT
  Shape,        // ShapeError
  UnknownName,  // UnknownNameError
  Device,       // DeviceError
  Unsupported,  // UnsupportedError
  Aborted,      // the caller asked for it
  Strict,       // StrictError: a finding of strict mode
};

// Thrown in libtcim_runtime_lite.so and caught in the Python extension: its destructor is out of line, so that the type
// information exists once.
class __attribute__((visibility("default"))) Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : Error(code, message, code) {}
  // `status_code`: whose Status the caller gets. A finding has that of the failure it tells of.
  Error(ErrorCode code, const std::string& message, ErrorCode status_code)
      : std::runtime_error(message), code_(code), status_code_(status_code) {}
  ~Error() override;
  ErrorCode code() const noexcept { return code_; }
  ErrorCode status_code() const noexcept { return status_code_; }

 private:
  ErrorCode code_;
  ErrorCode status_code_;
};

// Joins its arguments with operator<<.
template <typename... Parts>
std::string concat(Parts&&... parts) {
  std::ostringstream text;
  (text << ... << std::forward<Parts>(parts));
  return text.str();
}

template <typename... Parts>
[[noreturn]] void fail(ErrorCode code, Parts&&... parts) {
  throw Error(code, concat(std::forward<Parts>(parts)...));
}

}  // namespace tcim_lite
