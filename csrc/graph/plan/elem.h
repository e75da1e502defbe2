// T, the element of tensors between ops.
#pragma once

#include <cstdint>

namespace tcim_lite {

enum Elem : int { kF16 = 0, kF32 = 1 };

constexpr int64_t elem_bytes(Elem elem) { return elem == kF16 ? 2 : 4; }

}  // namespace tcim_lite
