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

// Neighbouring output pixels of one row, in a panel.
struct Run {
  int64_t oy, ox;     // the first
  int64_t at, count;  // where in the panel
};

// The runs of outputs [begin, begin + count); returns how many.
int runs_of(const Window::Axis& w, int64_t begin, int64_t count, Run (&runs)[kPanel]) {
  int64_t oy = begin / w.out, ox = begin % w.out;
  int found = 0;
  for (int64_t done = 0; done < count; ++found, ++oy, ox = 0) {
    const int64_t length = std::min(count - done, w.out - ox);
    runs[found] = {oy, ox, done, length};
    done += length;
  }
  return found;
}

// Most runs are short: a call of memcpy would take longer than the copy.
template <typename T>
void copy(const T* from, int64_t count, T* to) {
  if (count >= 16) {
    std::memcpy(to, from, size_t(count) * sizeof(T));
  } else {
    for (int64_t i = 0; i < count; ++i) to[i] = from[i];
  }
}

// `count` outputs of one row, of the tap whose first position is `start`.
template <typename T>
void unfold_run(const Window::Axis& w, const T* row, int64_t start, int64_t count, T outside, T* out) {
  if (w.upsample != 1) {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t at = index_of(w, start + i * w.stride);
      out[i] = at < 0 ? outside : row[at];
    }
    return;
  }
  // Outputs [before, end) read elements of the row.
  int64_t before = 0, end = count;
  if (start < 0) before = std::min(count, (-start + w.stride - 1) / w.stride);
  if (start + (count - 1) * w.stride >= w.in) {
    end = start < w.in ? std::max(before, (w.in - start + w.stride - 1) / w.stride) : before;
  }
  for (int64_t i = 0; i < before; ++i) out[i] = outside;
  if (w.stride == 1) {
    if (end > before) copy(row + start + before, end - before, out + before);
  } else {
    for (int64_t i = before; i < end; ++i) out[i] = row[start + i * w.stride];
  }
  for (int64_t i = end; i < count; ++i) out[i] = outside;
}

// Whether output pixel i reads element i, and no other.
bool is_identity(const Window& window) {
  const auto plain = [](const Window::Axis& axis) {
    return axis.kernel == 1 && axis.stride == 1 && axis.pad == 0 && axis.upsample == 1 && axis.in == axis.out;
  };
  return plain(window.h) && plain(window.w);
}

}  // namespace

template <typename T>
void unfold(const Window& window, const T* plane, int64_t begin, int64_t count, T outside, T* panel) {
  const Window::Axis &h = window.h, &w = window.w;
  if (is_identity(window)) return copy(plane + begin, count, panel);
  Run runs[kPanel];
  const int found = runs_of(w, begin, count, runs);
  for (int64_t i = 0; i < h.kernel; ++i) {
    for (int64_t j = 0; j < w.kernel; ++j, panel += kPanel) {
      for (int r = 0; r < found; ++r) {
        const Run& run = runs[r];
        const int64_t position = run.oy * h.stride + i * h.dilation - h.pad;
        const int64_t y = h.upsample == 1 ? (position >= 0 && position < h.in ? position : -1) : index_of(h, position);
        if (y < 0) {
          std::fill_n(panel + run.at, run.count, outside);
        } else {
          unfold_run(w, plane + y * w.in, run.ox * w.stride + j * w.dilation - w.pad, run.count, outside,
                     panel + run.at);
        }
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
