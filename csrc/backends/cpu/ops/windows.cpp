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

// Columns [0, count) of rows: moved by the first and the last N of them, N being a constant and count N to 2 N.
template <int N, typename T>
void copy_pieces(const T* from, int64_t from_stride, T* to, int64_t count, int64_t stride, int64_t rows) {
  for (int64_t row = 0; row < rows; ++row, from += from_stride, to += stride) {
    std::memcpy(to, from, N * sizeof(T));
    std::memcpy(to + count - N, from + count - N, N * sizeof(T));
  }
}

// `count` columns, at most kPanel, of `rows` rows.
template <typename T>
void copy(const T* from, int64_t from_stride, T* to, int64_t count, int64_t stride, int64_t rows) {
  if (count >= 16) return copy_pieces<16>(from, from_stride, to, count, stride, rows);
  if (count >= 8) return copy_pieces<8>(from, from_stride, to, count, stride, rows);
  if (count >= 4) return copy_pieces<4>(from, from_stride, to, count, stride, rows);
  if (count >= 2) return copy_pieces<2>(from, from_stride, to, count, stride, rows);
  if (count == 1) copy_pieces<1>(from, from_stride, to, count, stride, rows);
}

template <typename T>
void fill(T value, T* to, int64_t count, int64_t stride, int64_t rows) {
  for (int64_t row = 0; count > 0 && row < rows; ++row, to += stride) std::fill_n(to, count, value);
}

// Neighbouring rows of a panel that one tap gives: a row per plane.
template <typename T>
struct TapRows {
  T* at;
  int64_t stride, planes;
};

// Of `count` outputs whose first reads column `start`, [before, end) read elements of the row.
void columns_inside(const Window::Axis& w, int64_t start, int64_t count, int64_t& before, int64_t& end) {
  before = 0, end = count;
  if (start < 0) before = std::min(count, (-start + w.stride - 1) / w.stride);
  if (start + (count - 1) * w.stride >= w.in)
    end = start < w.in ? std::max(before, (w.in - start + w.stride - 1) / w.stride) : before;
}

// `count` outputs of one row of the planes, of the tap whose first position is `start`.
template <typename T>
void unfold_run(const Window& window, const T* row, int64_t start, int64_t count, T outside, TapRows<T> out) {
  const Window::Axis& w = window.w;
  const int64_t pixels = window.in_pixels();
  if (w.upsample != 1) {
    for (int64_t plane = 0; plane < out.planes; ++plane, row += pixels, out.at += out.stride) {
      for (int64_t i = 0; i < count; ++i) {
        const int64_t at = index_of(w, start + i * w.stride);
        out.at[i] = at < 0 ? outside : row[at];
      }
    }
    return;
  }
  int64_t before, end;
  columns_inside(w, start, count, before, end);
  fill(outside, out.at, before, out.stride, out.planes);
  fill(outside, out.at + end, count - end, out.stride, out.planes);
  if (end <= before) return;
  const T* from = row + start + before * w.stride;
  T* to = out.at + before;
  if (w.stride == 1) return copy(from, pixels, to, end - before, out.stride, out.planes);
  for (int64_t plane = 0; plane < out.planes; ++plane, from += pixels, to += out.stride)
    copy_every(w.stride, from, end - before, to);
}

}  // namespace

bool is_identity(const Window& window) {
  const auto plain = [](const Window::Axis& axis) {
    return axis.kernel == 1 && axis.stride == 1 && axis.pad == 0 && axis.upsample == 1 && axis.in == axis.out;
  };
  return plain(window.h) && plain(window.w);
}

// Where a tap reads is found once for all planes.
template <typename T>
void unfold(const Window& window, const T* first_plane, int64_t planes, int64_t begin, int64_t count, T outside,
            T* panel) {
  const Window::Axis &h = window.h, &w = window.w;
  if (is_identity(window)) return copy(first_plane + begin, window.in_pixels(), panel, count, kPanel, planes);
  Run runs[kPanel];
  const int found = runs_of(w, begin, count, runs);
  const int64_t stride = window.taps() * kPanel;
  for (int64_t i = 0; i < h.kernel; ++i) {
    for (int64_t j = 0; j < w.kernel; ++j, panel += kPanel) {
      for (int r = 0; r < found; ++r) {
        const Run& run = runs[r];
        const int64_t position = run.oy * h.stride + i * h.dilation - h.pad;
        const int64_t y = h.upsample == 1 ? (position >= 0 && position < h.in ? position : -1) : index_of(h, position);
        const TapRows<T> out{panel + run.at, stride, planes};
        if (y < 0) {
          fill(outside, out.at, run.count, stride, planes);
        } else {
          unfold_run(window, first_plane + y * w.in, run.ox * w.stride + j * w.dilation - w.pad, run.count, outside,
                     out);
        }
      }
    }
  }
}

template void unfold(const Window&, const uint16_t*, int64_t, int64_t, int64_t, uint16_t, uint16_t*);
template void unfold(const Window&, const float*, int64_t, int64_t, int64_t, float, float*);

int64_t window_runs(const Window& window, int64_t begin, int64_t count, WindowRun* found) {
  const Window::Axis &h = window.h, &w = window.w;
  Run runs[kPanel];
  const int number = runs_of(w, begin, count, runs);
  for (int64_t i = 0; i < h.kernel; ++i) {
    for (int64_t j = 0; j < w.kernel; ++j) {
      for (int r = 0; r < number; ++r, ++found) {
        const Run& run = runs[r];
        const int64_t row = run.oy * h.stride + i * h.dilation - h.pad;
        const int64_t start = run.ox * w.stride + j * w.dilation - w.pad;
        int64_t before, end;
        columns_inside(w, start, run.count, before, end);
        *found = {0, 0};
        if (row < 0 || row >= h.in || end <= before) continue;
        const uint32_t lanes = uint32_t(((uint64_t{1} << end) - (uint64_t{1} << before)) << run.at);
        *found = {row * w.in + start - run.at * w.stride, lanes};
      }
    }
  }
  return number;
}

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
