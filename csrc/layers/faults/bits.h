// One flipped bit in a tensor of a run, or in a weight.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "layers/faults/devices.h"
#include "layers/faults/rules.h"
#include "runtime/observer.h"

namespace tcim_lite::layers {

// Whether the model has the tensor that the rule names.
bool has_tensor(const Program& program, const FaultRule& rule);

// Flips it and says where: "bit 3 of byte 17 of output 'logits'". `count` is how often the rule has fired. `run` is
// null at a load, where only weights can change. A byte that the tensor does not have is said to be outside of it.
std::string flip_bit(const FaultRule& rule, uint64_t count, Program& program, const RunEvent* run,
                     FaultyDevices& devices);

}  // namespace tcim_lite::layers
