// Panels: what 32 neighbouring outputs of a window op read, tap by tap.
#pragma once

#include <cstdint>

#include "backends/cpu/kernel_table.h"
#include "graph/plan/steps.h"

namespace tcim_lite::cpu {

// panel[tap, j] = the element of `plane` that tap `tap` of output pixel begin + j reads, or `outside` where there is
// none; j from 0 to count. Elements of T are copied as they are.
template <typename T>
void unfold(const Window& window, const T* plane, int64_t begin, int64_t count, T outside, T* panel);

// counts[j] = taps of output pixel begin + j that read an element, or with an extent those inside the padded input.
void count_taps(const Window& window, int64_t extent_h, int64_t extent_w, int64_t begin, int64_t count, float* counts);

}  // namespace tcim_lite::cpu
