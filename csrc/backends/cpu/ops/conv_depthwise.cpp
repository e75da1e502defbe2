// Conv whose groups have one channel and one output: from planes with their padding around them, some rows at a time,
// or, of 3 x 3, from planes where they lie.
#include <algorithm>

#include "backends/cpu/ops/conv.h"
#include "backends/cpu/ops/padded.h"

namespace tcim_lite::cpu {
namespace {

constexpr int64_t kLeastTerms = kGrainTerms / 4;  // of a task, where planes are read in place
constexpr int64_t kLeastRows = 8;                 // of a part: the first and the last read one more

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

// Whether planes are read where they lie.
bool ConvStep::is_depthwise_in_place() const {
  const auto fits = [&](const Window::Axis& axis) {
    return axis.kernel == 3 && axis.pad == 1 && axis.dilation == 1 && axis.upsample == 1 && axis.stride <= 2 &&
           axis.stride == window.h.stride && axis.out == (axis.in + axis.stride - 1) / axis.stride;
  };
  return fits(window.h) && fits(window.w);
}

void ConvStep::run_depthwise_in_place(const RunContext& context) const {
  const int64_t size = elem_bytes(elem), pixels = window.out_pixels(), wanted = kTasksOfMember * context.pool.size();
  // Planes of a task are of one image; few and large ones are cut into parts.
  const int64_t share = (batch * groups + wanted - 1) / wanted, least = kLeastTerms / (9 * pixels);
  const int64_t planes = std::min(std::max(share, least), groups), blocks = (groups + planes - 1) / planes;
  const int64_t parts = std::clamp<int64_t>(wanted / (batch * blocks), 1, (window.h.out + kLeastRows - 1) / kLeastRows);
  const int64_t rows = (window.h.out + parts - 1) / parts;
  const auto run = [&](int64_t index, int) {
    const int64_t block = index / parts, image = block / blocks, channel = block % blocks * planes;
    const int64_t first = index % parts * rows, plane = image * groups + channel;
    if (first >= window.h.out) return;
    const int64_t at = (plane * pixels + first * window.w.out) * size;
    std::byte* out = context.at(y) + at;
    const DepthwisePlanesArgs args{context.at(x) + plane * window.in_pixels() * size,
                                   weights + channel * 9 * size,
                                   bias == nullptr ? nullptr : bias + channel,
                                   residual.given() ? added.at(context) + at : nullptr,
                                   out,
                                   std::min(planes, groups - channel),
                                   window.h.in,
                                   window.w.in,
                                   window.h.stride,
                                   first,
                                   std::min(rows, window.h.out - first),
                                   window.w.out,
                                   pixels,
                                   stored_end()};
    context.kernels.depthwise_planes[elem](args);
    end_planes(context, out, args.planes, args.rows * args.cols);
  };
  context.pool.parallel_runs(batch * blocks * parts, run);
}

int64_t ConvStep::depthwise_bytes() const {
  return is_depthwise_turned() ? turned_bytes() : ScratchOfBands::bytes(Bands(window), window.taps());
}

void ConvStep::run_depthwise(const RunContext& context) const {
  if (is_depthwise_turned()) return run_depthwise_turned(context);
  if (is_depthwise_in_place()) return run_depthwise_in_place(context);
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
    context.kernels.depthwise[elem]({scratch.band, depthwise_offsets_.data(), factors,
                                     bias == nullptr ? nullptr : bias + channel,
                                     residual.given() ? added.at(context) + at : nullptr, out, taps, rows, w.out,
                                     bands.row_step * bands.pitch, stored_end()});
    end_planes(context, out, 1, rows * w.out);
  };
  const int64_t grain = std::max<int64_t>(1, kGrainTerms / (bands.rows * w.out * taps));
  context.pool.parallel_for(batch * groups * count, run, grain);
}

}  // namespace tcim_lite::cpu
