// Writes one line per call, and two per round of a run, as text or JSON.
#pragma once

#include <memory>

#include "layers/registry.h"

namespace tcim_lite::layers {

// Options, with the environment variable that speaks where one is not given:
//   file (TCIM_LITE_TRACE_FILE): lines are appended to it; default: standard error.
//   format (TCIM_LITE_TRACE_FORMAT): text (default) or json.
// Throws Error(Argument) for another format and a file that cannot be opened.
std::shared_ptr<Observer> make_trace(const Options& options);

}  // namespace tcim_lite::layers
