#include "backends/cpu/ops/pool.h"

#include <algorithm>
#include <limits>

#include "backends/cpu/ops/blocks.h"
#include "backends/cpu/ops/padded.h"
#include "backends/cpu/ops/units.h"
#include "backends/cpu/ops/windows.h"

namespace tcim_lite::cpu {
namespace {

constexpr uint16_t kHalfLowest = 0xfc00;  // -infinity
constexpr int64_t kPlanesOfCounts = 8;    // at least, for which a task counts the taps of a mean

float outside_of(const PoolSpec& spec) { return spec.mean ? 0.0f : -std::numeric_limits<float>::infinity(); }

// A member's scratch.
struct BandScratch {
  BandScratch(std::byte* base, const Bands& bands, int64_t taps)
      : band(reinterpret_cast<float*>(base)),
        offsets(reinterpret_cast<int64_t*>(band + bands.floats)),
        row(reinterpret_cast<float*>(offsets + taps)),
        counts(row + bands.w.in) {}
  static int64_t bytes(const Bands& bands, int64_t taps) {
    return taps * 8 + (bands.floats + bands.w.in + bands.rows * bands.w.out) * 4;
  }

  float* band;       // as Bands
  int64_t* offsets;  // [taps]
  float* row;        // [in], of fp16
  float* counts;     // [rows, out]
};

struct TapScratch {
  TapScratch(std::byte* base, int64_t taps)
      : panel(reinterpret_cast<float*>(base)),
        offsets(reinterpret_cast<int64_t*>(panel + taps * kPanel)),
        counts(reinterpret_cast<float*>(offsets + taps)),
        halves(reinterpret_cast<uint16_t*>(counts + kPanel)) {}
  static int64_t bytes(int64_t taps) { return taps * 8 + (taps + 1) * kPanel * 4 + taps * kPanel * 2; }

  float* panel;      // [taps, kPanel]
  int64_t* offsets;  // [taps]
  float* counts;     // [kPanel]
  uint16_t* halves;  // [taps, kPanel], of fp16
};

}  // namespace

int64_t PoolStep::shared_bytes() const {
  return x_in_blocks && !y_in_blocks ? planes / channels * round_up(channels, kBlock) * window.out_pixels() * 4 : 0;
}

int64_t PoolStep::member_bytes() const {
  if (x_in_blocks || is_in_place()) return 0;
  const int64_t taps = window.taps();
  return Bands::fit(window) ? BandScratch::bytes(Bands(window), taps) : TapScratch::bytes(taps);
}

void PoolStep::run(const RunContext& context) const {
  if (x_in_blocks) return run_blocks(context);
  if (is_in_place()) return run_in_place(context);
  if (Bands::fit(window)) return run_bands(context);
  run_panels(context);
}

bool PoolStep::is_in_place() const {
  const int64_t pad = window.h.pad;
  const auto fits = [pad](const Window::Axis& axis) {
    return axis.kernel == 3 && axis.stride == 2 && axis.pad == pad && axis.dilation == 1 && axis.upsample == 1 &&
           axis.out == (pad == 1 ? axis.in + 1 : axis.in - 1) / 2;
  };
  const bool splits = pad == 1 ? window.w.in % 2 == 0 : pad == 0;
  return !mean && splits && fits(window.h) && fits(window.w);
}

void PoolStep::run_in_place(const RunContext& context) const {
  const int64_t size = elem_bytes(elem), in_pixels = window.in_pixels(), pixels = window.out_pixels();
  const int64_t chunk = std::max<int64_t>(1, kGrainTerms / (pixels * window.taps()));
  context.pool.parallel_runs((planes + chunk - 1) / chunk, [&](int64_t index, int) {
    const int64_t plane = index * chunk;
    context.kernels.pool_planes[elem]({context.at(x) + plane * in_pixels * size, context.at(y) + plane * pixels * size,
                                       std::min(chunk, planes - plane), window.h.in, window.w.in, window.h.out,
                                       window.w.out, window.h.pad == 1});
  });
}

void PoolStep::count(int64_t pixel, int64_t count, float* counts) const {
  count_taps(window, counts_pads ? extent_h : 0, counts_pads ? extent_w : 0, pixel, count, counts);
}

void PoolStep::run_bands(const RunContext& context) const {
  const Bands bands(window);
  const int64_t size = elem_bytes(elem), taps = window.taps(), cols = window.w.out;
  const int64_t least = mean ? kPlanesOfCounts : 1;
  const int64_t chunk = std::max(least, kGrainTerms / (bands.rows * cols * taps));
  const int64_t chunks = (planes + chunk - 1) / chunk;
  context.pool.parallel_for(chunks * bands.count(), [&](int64_t index, int member) {
    const BandScratch scratch(context.member(member), bands, taps);
    const int64_t first = index % bands.count() * bands.rows, rows = std::min(bands.rows, window.h.out - first);
    for (int64_t tap = 0; tap < taps; ++tap)
      scratch.offsets[tap] = bands.offset(tap / window.w.kernel, tap % window.w.kernel);
    if (mean) count(first * cols, rows * cols, scratch.counts);
    const int64_t plane = index / bands.count() * chunk, end = std::min(plane + chunk, planes);
    for (int64_t i = plane; i < end; ++i) {
      bands.fill(context, elem, context.at(x) + i * window.in_pixels() * size, first, rows, outside_of(*this),
                 scratch.row, scratch.band);
      std::byte* out = context.at(y) + (i * window.out_pixels() + first * cols) * size;
      context.kernels.pool[elem]({scratch.band, scratch.offsets, mean ? scratch.counts : nullptr, out, taps, rows, cols,
                                  bands.row_step * bands.pitch});
    }
  });
}

void PoolStep::run_blocks(const RunContext& context) const {
  const int64_t images = planes / channels, pixels = window.out_pixels();
  const BlockRows tasks(window, images, channels, context.pool.size());
  const auto* from = reinterpret_cast<const float*>(context.at(x));
  auto* to = reinterpret_cast<float*>(y_in_blocks ? context.at(y) : context.shared_scratch);
  context.pool.parallel_runs(tasks.count(), [&](int64_t index, int) {
    const BlockRows::Part part = tasks.part(index);
    const int64_t at = (part.block * pixels + part.window.first * window.w.out) * kBlock;
    context.kernels.pool_block({part.window, from + part.block * window.in_pixels() * kBlock, to + at});
  });
  if (!y_in_blocks) turn_blocks(context, elem, to, images, channels, pixels, context.at(y));
}

void PoolStep::run_panels(const RunContext& context) const {
  const int64_t size = elem_bytes(elem), taps = window.taps(), pixels = window.out_pixels();
  const int64_t panels = (pixels + kPanel - 1) / kPanel;
  const int64_t chunk = std::max<int64_t>(1, 512 / (taps * panels));
  context.pool.parallel_for((planes + chunk - 1) / chunk, [&](int64_t index, int member) {
    const TapScratch scratch(context.member(member), taps);
    for (int64_t tap = 0; tap < taps; ++tap) scratch.offsets[tap] = tap * kPanel;
    for (int64_t pixel = 0; pixel < pixels; pixel += kPanel) {
      const int64_t count = std::min(kPanel, pixels - pixel);
      if (mean) this->count(pixel, count, scratch.counts);
      for (int64_t plane = index * chunk; plane < std::min(index * chunk + chunk, planes); ++plane) {
        const std::byte* source = context.at(x) + plane * window.in_pixels() * size;
        if (elem == kF16) {
          unfold(window, reinterpret_cast<const uint16_t*>(source), 1, pixel, count, mean ? uint16_t{0} : kHalfLowest,
                 scratch.halves);
          context.kernels.widen[kF16]({scratch.halves, scratch.panel, taps, count, kPanel, kPanel, 1.0f});
        } else {
          unfold(window, reinterpret_cast<const float*>(source), 1, pixel, count, outside_of(*this), scratch.panel);
        }
        context.kernels.pool[elem]({scratch.panel, scratch.offsets, mean ? scratch.counts : nullptr,
                                    context.at(y) + (plane * pixels + pixel) * size, taps, 1, count, 0});
      }
    }
  });
}

}  // namespace tcim_lite::cpu
