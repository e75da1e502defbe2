// Planes with their padding around them: rows of the input as fp32, columns sorted by phase.
#pragma once

#include "backends/cpu/plan.h"

namespace tcim_lite::cpu {

// What some neighbouring output rows of a window read of one plane. Columns of a padded row lie in phases: those that
// differ by a multiple of the stride side by side, so that neighbouring outputs read neighbours. Without upsampling.
struct PaddedRows {
  // `slack`: floats behind the last row that a kernel may read.
  PaddedRows(const Window& window, int64_t slack);

  // Whether its sizes are worth computing: a padding may be much larger than the input.
  static bool is_reasonable(const Window& window, int64_t most_floats);

  // Input rows that `rows` output rows read, and the floats they take.
  int64_t in_rows(int64_t rows) const { return (rows - 1) * row_step + (kept ? 1 : (h.kernel - 1) * h.dilation + 1); }
  int64_t floats(int64_t rows) const { return (in_rows(rows) * pitch + slack + 15) / 16 * 16; }
  // Where tap (i, j) of the first output lies.
  int64_t offset(int64_t i, int64_t j) const {
    const int64_t column = j * w.dilation;
    return i * h.dilation * pitch + column % w.stride * phase + column / w.stride;
  }

  // Of output rows [first, first + rows), from `plane` [h.in, w.in] T to `to` [floats(rows)], `outside` where there is
  // none. `row`: [w.in] floats.
  void fill(const RunContext& context, Elem elem, const std::byte* plane, int64_t first, int64_t rows, float outside,
            float* row, float* to) const;
  // Padded rows [first, first + count), in `floats`.
  void fill_rows(const RunContext& context, Elem elem, const std::byte* plane, int64_t first, int64_t count,
                 int64_t floats, float outside, float* row, float* to) const;

  const Window::Axis &h, &w;
  bool kept;  // only every stride-th row is there, as no tap reads the others
  int64_t slack, row_step, phases, phase, pitch;
};

// Output rows some at a time, so that the padded rows they read stay in the first cache. Kernels may read 16 columns
// behind a row; that is the next row, or slack.
struct Bands : PaddedRows {
  explicit Bands(const Window& window);
  // Whether the rows of a band are few enough; if not, panels take less memory.
  static bool fit(const Window& window);
  int64_t count() const { return (h.out + rows - 1) / rows; }

  int64_t rows, floats;  // of a band: output rows; padded rows
};

}  // namespace tcim_lite::cpu
