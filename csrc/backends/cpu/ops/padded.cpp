#include "backends/cpu/ops/padded.h"

#include <algorithm>
#include <cstring>

#include "backends/cpu/ops/windows.h"

namespace tcim_lite::cpu {
namespace {

constexpr int64_t kBandFloats = 8192;         // of a band
constexpr int64_t kMostBandFloats = 1 << 18;  // of a band of one row
constexpr int64_t kSlack = 16;

// A row of the input into the phases of a padded row.
void spread(const Window::Axis& w, const float* row, int64_t phases, int64_t phase, float* out) {
  for (int64_t of = 0; of < phases; ++of, out += phase) {
    const int64_t first = std::max<int64_t>(0, (w.pad - of + w.stride - 1) / w.stride);
    const int64_t end = std::min(phase, (w.in + w.pad - of + w.stride - 1) / w.stride);
    if (first < end) copy_every(w.stride, row + first * w.stride + of - w.pad, end - first, out + first);
  }
}

// The same of two phases, in one go.
void spread_pairs(const Window::Axis& w, const float* row, int64_t phase, float* out) {
  const int64_t skipped = std::max<int64_t>(0, -w.pad), column = w.pad + skipped, in = w.in - skipped;
  const float* __restrict from = row + skipped;
  float* __restrict even = out + column % 2 * phase + column / 2;
  float* __restrict odd = out + (column + 1) % 2 * phase + (column + 1) / 2;
  const int64_t pairs = std::min(in / 2, phase - (column + 1) / 2);
  for (int64_t i = 0; i < pairs; ++i) {
    even[i] = from[2 * i];
    odd[i] = from[2 * i + 1];
  }
  const int64_t last = std::max<int64_t>(0, pairs);
  if (2 * last < in && column / 2 + last < phase) even[last] = from[2 * last];
}

}  // namespace

PaddedRows::PaddedRows(const Window& window, int64_t slack)
    : h(window.h), w(window.w), kept(h.kernel == 1), slack(slack), row_step(kept ? 1 : h.stride) {
  const int64_t reach = (w.kernel - 1) * w.dilation, columns = (w.out - 1) * w.stride + reach + 1;
  phases = std::min(w.stride, reach + 1);
  phase = (columns + w.stride - 1) / w.stride;
  pitch = phase * phases;
}

bool PaddedRows::is_reasonable(const Window& window, int64_t most_floats) {
  const int64_t most = most_floats / 2;
  for (const Window::Axis* axis : {&window.h, &window.w}) {
    if (axis->upsample != 1 || axis->stride > most || axis->dilation > most) return false;
    if ((axis->out + axis->kernel) * (axis->stride + axis->dilation) > most) return false;
  }
  return true;
}

void PaddedRows::fill(const RunContext& context, Elem elem, const std::byte* plane, int64_t first, int64_t rows,
                      float outside, float* row, float* to) const {
  fill_rows(context, elem, plane, first * row_step, in_rows(rows), floats(rows), outside, row, to);
}

void PaddedRows::fill_rows(const RunContext& context, Elem elem, const std::byte* plane, int64_t first, int64_t count,
                           int64_t floats, float outside, float* row, float* to) const {
  const int64_t size = elem_bytes(elem), step = kept ? h.stride : 1;
  // Padded rows [begin, end) have an input row: top + index * step.
  const int64_t top = first * step - h.pad;
  const int64_t begin = std::min(count, top < 0 ? (-top + step - 1) / step : 0);
  const int64_t end = top < h.in ? std::max(begin, std::min(count, (h.in - top + step - 1) / step)) : begin;
  if (outside == 0.0f)
    std::memset(to, 0, size_t(floats) * sizeof(float));  // with vectors that this file's flags do not have
  else
    std::fill_n(to, floats, outside);
  if (begin == end) return;
  const std::byte* from = plane + (top + begin * step) * w.in * size;
  to += begin * pitch;
  if (w.stride == 1) {
    const int64_t before = std::max<int64_t>(0, w.pad), skipped = std::max<int64_t>(0, -w.pad);
    const int64_t columns = std::min(w.in - skipped, phase - before);
    if (columns > 0)
      context.kernels.widen[elem]({from + skipped * size, to + before, end - begin, columns, step * w.in, pitch, 1.0f});
    return;
  }
  for (int64_t index = begin; index < end; ++index, from += step * w.in * size, to += pitch) {
    const float* source = reinterpret_cast<const float*>(from);
    if (elem != kF32) {
      context.kernels.widen[elem]({from, row, 1, w.in, w.in, w.in, 1.0f});
      source = row;
    }
    if (w.stride == 2 && phases == 2)
      spread_pairs(w, source, phase, to);
    else
      spread(w, source, phases, phase, to);
  }
}

Bands::Bands(const Window& window) : PaddedRows(window, kSlack) {
  const int64_t reach = in_rows(1) - 1;
  rows = std::clamp<int64_t>((kBandFloats / pitch - reach - 1) / row_step + 1, 1, h.out);
  rows = (h.out + count() - 1) / count();
  floats = PaddedRows::floats(rows);
}

bool Bands::fit(const Window& window) {
  return is_reasonable(window, kMostBandFloats) && Bands(window).floats <= kMostBandFloats;
}

}  // namespace tcim_lite::cpu
