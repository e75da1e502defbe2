// How a caller stops a load that takes too long.
#pragma once

#include <functional>

#include "base/error.h"
#include "runtime/api_call.h"

namespace tcim_lite {

// Returns true to stop the load. It is called on the loading thread without any lock held, so it may use the whole API
// and may fork. An exception from it also ends the load. May be empty.
using ShouldAbort = std::function<bool()>;

inline void check_abort(const ShouldAbort& should_abort) {
  if (!should_abort) return;
  const ApiCall::Pause outside;
  bool abort = false;
  try {
    abort = should_abort();
  } catch (const std::exception& error) {
    fail(ErrorCode::Aborted, "load: the abort callback threw: ", error.what());
  }
  if (abort) fail(ErrorCode::Aborted, "load: aborted by the caller's callback");
}

}  // namespace tcim_lite
