// How a caller stops a load that takes too long.
#pragma once

#include <functional>

#include "base/error.h"
#include "runtime/api_call.h"

namespace tcim_lite {

// True: stop. Called on the thread that loads, with no lock held, so it may call the whole API and fork; what it throws
// ends the load too. May be empty.
using ShouldAbort = std::function<bool()>;

inline void check_abort(const ShouldAbort& should_abort) {
  if (!should_abort) return;
  const ApiCall::Pause outside;
  if (should_abort()) fail(ErrorCode::Aborted, "load: aborted by the caller's callback");
}

}  // namespace tcim_lite
