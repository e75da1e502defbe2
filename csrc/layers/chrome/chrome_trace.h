// Calls, runs, copies and memory as a picture over time, for Perfetto (docs/trace.md).
#pragma once

#include <memory>
#include <string>

#include "runtime/observer.h"

namespace tcim_lite::layers {

// `phases`: what is shown inside of a run: none, layers or ops. Throws Error(Argument) for other phases and for a file
// that cannot take a trace.
std::shared_ptr<Observer> make_chrome_trace(const std::string& path, const std::string& phases);

}  // namespace tcim_lite::layers
