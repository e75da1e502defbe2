// Panels: what 32 neighbouring outputs of a window op read, tap by tap.
#pragma once

#include <cstdint>

#include "backends/cpu/kernel_table.h"
#include "graph/plan/steps.h"

namespace tcim_lite::cpu {

// to[i] = from[i * stride], i from 0 to count.
template <typename T>
void copy_every(int64_t stride, const T* from, int64_t count, T* to) {
  if (stride == 2) {  // a constant, which vectors can do
    for (int64_t i = 0; i < count; ++i) to[i] = from[2 * i];
  } else {
    for (int64_t i = 0; i < count; ++i) to[i] = from[i * stride];
  }
}

// Whether output pixel i reads element i, and no other.
bool is_identity(const Window& window);

// panel[plane * taps + tap, j] = the element of a plane that tap `tap` of output pixel begin + j reads, or `outside`
// where there is none; j from 0 to count. Elements of T are copied as they are.
template <typename T>
void unfold(const Window& window, const T* first_plane, int64_t planes, int64_t begin, int64_t count, T outside,
            T* panel);

// The runs of each tap for output pixels [begin, begin + count), [taps, returned], in elements of a plane; the same for
// all planes. Without upsampling.
int64_t window_runs(const Window& window, int64_t begin, int64_t count, WindowRun* runs);

// counts[j] = taps of output pixel begin + j that read an element, or with an extent those inside the padded input.
void count_taps(const Window& window, int64_t extent_h, int64_t extent_w, int64_t begin, int64_t count, float* counts);

}  // namespace tcim_lite::cpu
