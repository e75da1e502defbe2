// The rules of strict mode that show when a round of a run begins: lengths, cache rows and inputs.
#pragma once

#include <string>

#include "layers/strict/call_rules.h"

namespace tcim_lite::layers {

// `site` becomes that of the call to run.
Found check_run(Shadow& shadow, const RunEvent& event, std::string& site);
// What the round wrote.
void learn_run(Shadow& shadow, const RunEvent& event);

}  // namespace tcim_lite::layers
