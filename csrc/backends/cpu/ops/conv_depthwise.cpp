// Conv whose groups have one channel and one output: from planes with their padding around them, some rows at a time.
#include <algorithm>

#include "backends/cpu/ops/conv.h"
#include "backends/cpu/ops/padded.h"

namespace tcim_lite::cpu {
namespace {

// A member's scratch.
struct ScratchOfBands {
  ScratchOfBands(std::byte* base, const Bands& bands)
      : band(reinterpret_cast<float*>(base)), row(band + bands.floats), weights(row + bands.w.in) {}

  static int64_t bytes(const Bands& bands, int64_t taps) { return (bands.floats + bands.w.in + taps) * 4; }

  float* band;     // as Bands
  float* row;      // [in], of fp16
  float* weights;  // [taps], of fp16
};

}  // namespace

bool ConvStep::is_depthwise() const {
  return format == WeightFormat::Dense && channels == 1 && outputs == 1 && Bands::fit(window);
}

std::vector<int64_t> ConvStep::depthwise_offsets() const {
  std::vector<int64_t> offsets;
  if (!is_depthwise()) return offsets;
  const Bands bands(window);
  for (int64_t i = 0; i < window.h.kernel; ++i) {
    for (int64_t j = 0; j < window.w.kernel; ++j) offsets.push_back(bands.offset(i, j));
  }
  return offsets;
}

int64_t ConvStep::depthwise_bytes() const { return ScratchOfBands::bytes(Bands(window), window.taps()); }

void ConvStep::run_depthwise(const RunContext& context) const {
  const Bands bands(window);
  const int64_t taps = window.taps(), size = elem_bytes(elem), pixels = window.out_pixels(), count = bands.count();
  const Window::Axis &h = window.h, &w = window.w;
  const auto run = [&](int64_t index, int member) {
    const ScratchOfBands scratch(context.member(member), bands);
    const int64_t plane = index / count, channel = plane % groups, first = index % count * bands.rows;
    const int64_t rows = std::min(bands.rows, h.out - first);
    const std::byte* from = context.at(x) + plane * window.in_pixels() * size;
    bands.fill(context, elem, from, first, rows, 0.0f, scratch.row, scratch.band);
    const std::byte* stored = weights + channel * taps * size;
    const float* factors = elem == kF32 ? reinterpret_cast<const float*>(stored) : scratch.weights;
    if (elem != kF32) context.kernels.widen[elem]({stored, scratch.weights, 1, taps, taps, taps, 1.0f});

    const int64_t at = (plane * pixels + first * w.out) * size;
    std::byte* out = context.at(y) + at;
    const bool ends = can_end(function);
    context.kernels.depthwise[elem]({scratch.band, depthwise_offsets_.data(), factors,
                                     bias == nullptr ? nullptr : bias + channel,
                                     residual.given() ? added.at(context) + at : nullptr, out, taps, rows, w.out,
                                     bands.row_step * bands.pitch, ends ? ConvEnd{function, alpha, beta} : ConvEnd{}});
    if (!ends) context.kernels.unary[function][elem]({out, out, rows * w.out, alpha, beta});
  };
  const int64_t grain = std::max<int64_t>(1, kGrainTerms / (bands.rows * w.out * taps));
  context.pool.parallel_for(batch * groups * count, run, grain);
}

}  // namespace tcim_lite::cpu
