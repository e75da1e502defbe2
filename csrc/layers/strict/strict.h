// Strict mode: names calls that work here and break on the card, and says why calls fail.
#pragma once

#include <memory>
#include <optional>

#include "layers/registry.h"

namespace tcim_lite::layers {

// Option mode (TCIM_LITE_STRICT): "warn" (default) logs a finding once per place; "error" raises Error(Strict) from the
// call, or for queued work from the next call of the module. Throws Error(Argument) for another mode.
std::shared_ptr<Observer> make_strict(const Options& options);

// Whether TCIM_LITE_STRICT enables or forbids the layer; nothing if it is not set. Throws Error(Argument).
std::optional<bool> strict_wanted();

}  // namespace tcim_lite::layers
