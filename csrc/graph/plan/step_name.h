// What a step is called in a profile.
#pragma once

#include <string>

#include "graph/plan/steps.h"

namespace tcim_lite {

struct StepName {
  std::string op;    // "Linear", "Attention"
  std::string form;  // of what has weights: "3072 x 1024 w4a8h0_ssfp", outputs by inputs; else empty

  bool operator==(const StepName&) const = default;
};

StepName name_of(const StepSpec& spec);

}  // namespace tcim_lite
