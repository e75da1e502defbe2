// Kernels that read windows of planes, for pools, resized images and codes: every instruction set against ref bit for
// bit.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "backends/cpu/dispatch.h"
#include "base/half.h"
#include "check.h"
#include "guarded_buffer.h"
#include "same_everywhere.h"

using namespace tcim_lite;
using namespace tcim_lite::cpu;

namespace {

// Codes of a window whose runs lie anywhere in the planes, and some columns in none.
void check_window_codes(int64_t planes, int64_t taps, int64_t cols, int64_t step) {
  const int64_t k = planes * taps, groups = (k + kGroup - 1) / kGroup, runs_of_tap = uniform(1, 4);
  const int64_t before = uniform(0, 40), plane = before + cols * step + uniform(0, 9);
  const Numbers<uint16_t> x(planes * plane);
  GuardedBuffer<WindowRun> runs(taps * runs_of_tap);
  for (int64_t tap = 0; tap < taps; ++tap) {
    for (int64_t run = 0, column = 0; run < runs_of_tap; ++run) {
      const int64_t end = std::min<int64_t>(cols, run + 1 == runs_of_tap ? cols : uniform(int(column), int(cols)));
      const uint64_t lanes = (uint64_t{1} << end) - (uint64_t{1} << column);
      // Elements of the plane, whose first may lie behind those of earlier columns.
      const int64_t at = uniform(-int(column * step), int(plane - 1 - (end > 0 ? end - 1 : 0) * step));
      runs[tap * runs_of_tap + run] = {at, uniform(0, 9) ? uint32_t(lanes) : 0};
      column = end;
    }
  }
  const int64_t numbers = groups * (kGroup / 4) * kPanel, part = groups * kPanel;
  same_everywhere<int32_t>(concat("codes of ", planes, " windows of ", taps, ", ", cols, " columns"),
                           numbers + 2 * part, [&](const KernelTable& table, int32_t* y) {
                             table.window_codes({x.data(), k, cols, plane, runs.data(), taps, runs_of_tap, step, y,
                                                 reinterpret_cast<float*>(y + numbers), y + numbers + part});
                           });
}

template <typename T>
void check_windows(int64_t taps, int64_t cols, int64_t inner) {
  const int64_t rows = uniform(1, 3), stride = cols + uniform(0, 20), reach = uniform(0, 30);
  Numbers<float> x_rows((rows - 1) * stride + reach + cols + 16);
  for (int64_t i = uniform(0, 4); i < reach; i += 5) x_rows[i] = -std::numeric_limits<float>::infinity();
  GuardedBuffer<int64_t> offsets(taps);
  for (int64_t& offset : offsets) offset = uniform(0, int(reach));
  GuardedBuffer<float> counts(rows * cols);
  for (float& count : counts) count = float(uniform(1, 9));
  for (const bool mean : {false, true}) {
    same_everywhere<T>(mean ? "mean of taps" : "largest tap", rows * cols, [&](const KernelTable& table, T* y) {
      table.pool[kElem<T>](
          {x_rows.data(), offsets.data(), mean ? counts.data() : nullptr, y, taps, rows, cols, stride});
    });
  }
  const int64_t of_one = inner == 1 ? uniform(1, kTurnedRows) : 1;
  const int64_t count = uniform(1, inner == 1 ? 40 : 3), extent = uniform(1, inner == 1 ? 40 : 5);
  const Numbers<T> x(of_one * extent * inner);
  GuardedBuffer<int32_t> indices(count * taps);
  for (int32_t& index : indices) index = uniform(0, int(extent) - 1);
  const Numbers<float> weights(count * taps);
  same_everywhere<T>("resample", of_one * count * inner, [&](const KernelTable& table, T* y) {
    const GuardedBuffer<float> scratch((extent + kTurnedRows) * kTurnedRows);
    table.resample[kElem<T>](
        {x.data(), indices.data(), weights.data(), y, of_one, extent, count, taps, inner, scratch.data()});
  });
}

// Windows of planes where they lie, with zeros of both signs and NaN.
template <typename T>
void check_pool_planes(int64_t in_rows, int64_t in_cols, bool padded) {
  const int64_t planes = uniform(1, 3), count = planes * in_rows * in_cols;
  GuardedBuffer<T> x(count);
  const float values[] = {0.0f, -0.0f, -1.0f, -2.0f, 3.0f, NAN, -INFINITY};
  for (int64_t i = 0; i < count; ++i) x[i] = to<T>(values[uniform(0, 6)]);
  const int64_t rows = (in_rows + (padded ? 1 : -1)) / 2, cols = (in_cols + (padded ? 1 : -1)) / 2;
  const PoolPlanesArgs args{x.data(), nullptr, planes, in_rows, in_cols, rows, cols, padded};
  same_everywhere<T>(concat("largest of planes of ", in_rows, " x ", in_cols, padded ? " with padding" : ""),
                     planes * rows * cols, [&](const KernelTable& table, T* y) {
                       PoolPlanesArgs here = args;
                       here.y = y;
                       table.pool_planes[kElem<T>](here);
                     });
}

template <typename T>
void check_all(int64_t size) {
  if (size <= kPanel) check_windows<T>(uniform(1, 9), size, size);
  for (const int64_t rows : {1, 2, 7}) check_pool_planes<T>(rows, 2 * size, true);
  for (const int64_t rows : {3, 4, 7}) {
    for (const int64_t more : {1, 2}) check_pool_planes<T>(rows, 2 * size + more, false);
  }
}

}  // namespace

int main() {
  for (const int64_t size : {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 100, 1000}) {
    check_all<uint16_t>(size);
    check_all<float>(size);
  }
  for (const int64_t taps : {1, 9, 49}) {
    for (const int64_t cols : {1, 7, 16, 17, 31, 32}) {
      for (const int64_t step : {1, 2}) check_window_codes(uniform(1, 20), taps, cols, step);
    }
  }
  return check_result();
}
