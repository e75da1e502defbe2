// Writes every call and every round of a run into a recording (docs/recording.md), which `tcim-lite replay` runs again.
#pragma once

#include <memory>

#include "layers/registry.h"

namespace tcim_lite::layers {

// Options, with the environment variable that is used where one is not given:
//   file (TCIM_LITE_LAYERS=record:FILE): required; replaced if it exists.
//   data (TCIM_LITE_RECORD_DATA): which values are stored besides their fingerprints: none, inputs (default), outputs,
//     all, states.
// TCIM_LITE_RECORD_SITES=1 adds the line of the Python code that called.
// Throws Error(Argument) for another choice of data, no file, or one that cannot be opened.
std::shared_ptr<Observer> make_record(const Options& options);

}  // namespace tcim_lite::layers
