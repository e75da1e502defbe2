// Conv whose groups have one channel and one output: from planes with their padding around them, some rows at a time.
#include <algorithm>

#include "backends/cpu/ops/conv.h"
#include "backends/cpu/ops/padded.h"

namespace tcim_lite::cpu {
namespace {

// A member's scratch.
struct ScratchOfBands {
  ScratchOfBands(std::byte* base, const Bands& bands, int64_t taps)
      : band(reinterpret_cast<float*>(base)),
        row(band + bands.floats),
        weights(row + bands.w.in),
        offsets(reinterpret_cast<int64_t*>(base + (bands.floats + bands.w.in + taps + 1) / 2 * 8)) {}

  static int64_t bytes(const Bands& bands, int64_t taps) {
    return (bands.floats + bands.w.in + taps + 1) / 2 * 8 + taps * 8;
  }

  float* band;       // as Bands
  float* row;        // [in], of fp16
  float* weights;    // [taps], of fp16
  int64_t* offsets;  // [taps]
};

}  // namespace

bool ConvStep::is_depthwise() const { return !quantized() && channels == 1 && outputs == 1 && Bands::fit(window); }

int64_t ConvStep::depthwise_bytes() const { return ScratchOfBands::bytes(Bands(window), window.taps()); }

void ConvStep::run_depthwise(const RunContext& context) const {
  const Bands bands(window);
  const int64_t taps = window.taps(), size = elem_bytes(elem), pixels = window.out_pixels();
  const Window::Axis &h = window.h, &w = window.w;
  const auto run = [&](int64_t index, int member) {
    const ScratchOfBands scratch(context.member(member), bands, taps);
    const int64_t plane = index / bands.count(), channel = plane % groups, first = index % bands.count() * bands.rows;
    const int64_t rows = std::min(bands.rows, h.out - first);
    const std::byte* from = context.at(x) + plane * window.in_pixels() * size;
    bands.fill(context, elem, from, first, rows, 0.0f, scratch.row, scratch.band);
    context.kernels.widen[elem]({weights + channel * taps * size, scratch.weights, 1, taps, taps, taps, 1.0f});
    for (int64_t tap = 0; tap < taps; ++tap) scratch.offsets[tap] = bands.offset(tap / w.kernel, tap % w.kernel);

    const int64_t at = (plane * pixels + first * w.out) * size;
    std::byte* out = context.at(y) + at;
    const bool ends = can_end(function);
    context.kernels.depthwise[elem]({scratch.band, scratch.offsets, scratch.weights,
                                     bias == nullptr ? nullptr : bias + channel,
                                     residual.given() ? added.at(context) + at : nullptr, out, taps, rows, w.out,
                                     bands.row_step * bands.pitch, ends ? ConvEnd{function, alpha, beta} : ConvEnd{}});
    if (!ends) context.kernels.unary[function][elem]({out, out, rows * w.out, alpha, beta});
  };
  const int64_t grain = std::max<int64_t>(1, kGrainTerms / (bands.rows * w.out * taps));
  context.pool.parallel_for(batch * groups * bands.count(), run, grain);
}

}  // namespace tcim_lite::cpu
