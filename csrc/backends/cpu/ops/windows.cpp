#include "backends/cpu/ops/windows.h"

#include <algorithm>
#include <cstring>

namespace tcim_lite::cpu {
namespace {

// The index that `position` means on an axis, or -1: between two elements, or outside.
int64_t index_of(const Window::Axis& axis, int64_t position) {
  if (position < 0 || position % axis.upsample != 0) return -1;
  const int64_t index = position / axis.upsample;
  return index < axis.in ? index : -1;
}

// `count` outputs of one row from column `ox`, of the tap whose first position is `start`.
template <typename T>
void unfold_run(const Window::Axis& w, const T* row, int64_t start, int64_t count, T outside, T* out) {
  if (w.stride == 1 && w.upsample == 1) {
    const int64_t before = std::clamp<int64_t>(-start, 0, count);
    const int64_t inside = std::clamp<int64_t>(w.in - (start + before), 0, count - before);
    std::fill_n(out, before, outside);
    std::memcpy(out + before, row + (inside > 0 ? start + before : 0), size_t(inside) * sizeof(T));
    std::fill_n(out + before + inside, count - before - inside, outside);
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = index_of(w, start + i * w.stride);
    out[i] = at < 0 ? outside : row[at];
  }
}

}  // namespace

template <typename T>
void unfold(const Window& window, const T* plane, int64_t begin, int64_t count, T outside, T* panel) {
  const Window::Axis &h = window.h, &w = window.w;
  for (int64_t i = 0; i < h.kernel; ++i) {
    for (int64_t j = 0; j < w.kernel; ++j, panel += kPanel) {
      for (int64_t done = 0; done < count;) {
        const int64_t oy = (begin + done) / w.out, ox = (begin + done) % w.out;
        const int64_t run = std::min(count - done, w.out - ox);
        const int64_t y = index_of(h, oy * h.stride + i * h.dilation - h.pad);
        if (y < 0) {
          std::fill_n(panel + done, run, outside);
        } else {
          unfold_run(w, plane + y * w.in, ox * w.stride + j * w.dilation - w.pad, run, outside, panel + done);
        }
        done += run;
      }
    }
  }
}

template void unfold(const Window&, const uint16_t*, int64_t, int64_t, uint16_t, uint16_t*);
template void unfold(const Window&, const float*, int64_t, int64_t, float, float*);

void count_taps(const Window& window, int64_t extent_h, int64_t extent_w, int64_t begin, int64_t count, float* counts) {
  const auto taps = [](const Window::Axis& axis, int64_t out, int64_t extent) {
    int64_t total = 0;
    for (int64_t tap = 0; tap < axis.kernel; ++tap) {
      const int64_t position = out * axis.stride + tap * axis.dilation;
      total += extent > 0 ? position < extent : index_of(axis, position - axis.pad) >= 0;
    }
    return total;
  };
  for (int64_t i = 0; i < count; ++i) {
    const int64_t pixel = begin + i;
    counts[i] = float(taps(window.h, pixel / window.w.out, extent_h) * taps(window.w, pixel % window.w.out, extent_w));
  }
}

}  // namespace tcim_lite::cpu
