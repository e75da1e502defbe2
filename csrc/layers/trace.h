// Writes one line per call, and two per round of a run, as text or JSON.
#pragma once

#include <memory>

#include "layers/registry.h"

namespace tcim_lite::layers {

// Options, with the environment variable that speaks where one is not given:
//   file (TCIM_LITE_TRACE_FILE): lines are appended to it; default: standard error.
//   format (TCIM_LITE_TRACE_FORMAT): text, json (an object a line) or chrome (for Perfetto; layers/chrome); default:
//     chrome for a file that ends in .json, else text.
//   phases (TCIM_LITE_TRACE_PHASES): none (default), layers or ops, inside of the runs of chrome.
// Throws Error(Argument) for another format and a file that cannot be opened.
std::shared_ptr<Observer> make_trace(const Options& options);

}  // namespace tcim_lite::layers
