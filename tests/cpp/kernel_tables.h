// The kernels of every instruction set of this machine.
#pragma once

#include <string>
#include <vector>

#include "backends/cpu/dispatch.h"
#include "base/half.h"

namespace tcim_lite::cpu {

// ref first. Made once: each asks the CPU what it has, which a hypervisor answers slowly.
inline const std::vector<KernelTable>& tables() {
  static const std::vector<KernelTable> all = [] {
    std::vector<KernelTable> list;
    for (const std::string& isa : available_isas()) list.push_back(make_table(isa));
    return list;
  }();
  return all;
}

// The element of fp16 or fp32 that is nearest.
template <typename T>
T to(float value) {
  if constexpr (sizeof(T) == 2)
    return float_to_half_saturate(value);
  else
    return value;
}

}  // namespace tcim_lite::cpu
