// Makes calls and runs fail as a card in trouble would: rules say which (docs/fault-injection.md).
#pragma once

#include <memory>

#include "layers/registry.h"

namespace tcim_lite::layers {

// Options: `file` (TCIM_LITE_FAULTS), a file of rules; `rules`, their text. Throws Error(Argument) for a file that
// cannot be read and for rules that cannot be.
std::shared_ptr<Observer> make_faults(const Options& options);

// Whether TCIM_LITE_FAULTS enables the layer.
bool faults_wanted();

}  // namespace tcim_lite::layers
