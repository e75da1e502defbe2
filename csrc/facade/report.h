// Where exceptions end: nothing is thrown through the facade (C-30).
#pragma once

#include <utility>

#include "tcim/tcim_runtime.h"

namespace tcim::internal {

// The Status of the exception being handled. Logs it and keeps it for GetLastError. `what` is the API's name.
TCIM_API Status report_failure(const char* what) noexcept;

template <typename Body>
Status guarded(const char* what, Body&& body) noexcept {
  try {
    std::forward<Body>(body)();
    return OK;
  } catch (...) {
    return report_failure(what);
  }
}

// What `body` returns, or `otherwise`.
template <typename Result, typename Body>
Result guarded_or(const char* what, Result otherwise, Body&& body) noexcept {
  try {
    return std::forward<Body>(body)();
  } catch (...) {
    report_failure(what);
    return otherwise;
  }
}

}  // namespace tcim::internal
