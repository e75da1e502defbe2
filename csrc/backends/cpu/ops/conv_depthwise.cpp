// Conv whose groups have one channel and one output: from planes with their padding around them, some rows at a time.
#include <algorithm>

#include "backends/cpu/ops/conv.h"
#include "backends/cpu/ops/windows.h"

namespace tcim_lite::cpu {
namespace {

constexpr int64_t kBandFloats = 8192;         // of a padded band: fits the first cache
constexpr int64_t kMostBandFloats = 1 << 18;  // beyond that the general path takes less memory
constexpr int64_t kSlack = 16;                // columns that the kernel may read behind a row

// A band of output rows and the padded rows it reads. Columns of a padded row lie in phases: those that differ by a
// multiple of the stride side by side, so that neighbouring outputs read neighbours.
struct Bands {
  explicit Bands(const Window& window) : h(window.h), w(window.w) {
    const int64_t columns = (w.out - 1) * w.stride + (w.kernel - 1) * w.dilation + 1;
    phase = (columns + w.stride - 1) / w.stride + kSlack;
    pitch = phase * w.stride;
    const int64_t reach = (h.kernel - 1) * h.dilation;
    rows = std::clamp<int64_t>((kBandFloats / pitch - reach - 1) / h.stride + 1, 1, h.out);
    floats = (((rows - 1) * h.stride + reach + 1) * pitch + 15) / 16 * 16;
  }
  int64_t count() const { return (h.out + rows - 1) / rows; }

  // Where tap (i, j) of the band's first output lies.
  int64_t offset(int64_t i, int64_t j) const {
    const int64_t column = j * w.dilation;
    return i * h.dilation * pitch + column % w.stride * phase + column / w.stride;
  }

  const Window::Axis &h, &w;
  int64_t phase, pitch, rows, floats;
};

// A row of the input into the phases of a padded row.
void spread(const Window::Axis& w, const float* row, int64_t phase, float* out) {
  for (int64_t of = 0; of < w.stride; ++of, out += phase) {
    const int64_t first = std::max<int64_t>(0, (w.pad - of + w.stride - 1) / w.stride);
    const int64_t end = std::min(phase, (w.in + w.pad - of + w.stride - 1) / w.stride);
    if (first < end) copy_every(w.stride, row + first * w.stride + of - w.pad, end - first, out + first);
  }
}

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

bool ConvStep::is_depthwise() const {
  const Window::Axis &h = window.h, &w = window.w;
  if (quantized() || channels != 1 || outputs != 1 || h.upsample != 1 || w.upsample != 1) return false;
  // The padding may be much larger than the input.
  const auto extent = [](const Window::Axis& a) { return (a.out + a.kernel) * (a.stride + a.dilation); };
  constexpr int64_t kMost = kMostBandFloats / 2;
  for (const Window::Axis* axis : {&h, &w}) {
    if (axis->stride > kMost || axis->dilation > kMost || extent(*axis) > kMost) return false;
  }
  return Bands(window).floats <= kMostBandFloats;
}

int64_t ConvStep::depthwise_bytes() const { return ScratchOfBands::bytes(Bands(window), window.taps()); }

void ConvStep::run_depthwise(const RunContext& context) const {
  const Bands bands(window);
  const int64_t taps = window.taps(), size = elem_bytes(elem), pixels = window.out_pixels();
  const Window::Axis &h = window.h, &w = window.w;
  const auto run = [&](int64_t index, int member) {
    const ScratchOfBands scratch(context.member(member), bands, taps);
    const int64_t plane = index / bands.count(), channel = plane % groups, first = index % bands.count() * bands.rows;
    const int64_t rows = std::min(bands.rows, h.out - first), top = first * h.stride - h.pad;
    const int64_t bottom = top + (rows - 1) * h.stride + (h.kernel - 1) * h.dilation + 1;
    const int64_t begin = std::max<int64_t>(0, top), count = std::min(h.in, bottom) - begin;
    std::fill_n(scratch.band, bands.floats, 0.0f);
    const std::byte* from = context.at(x) + (plane * h.in + begin) * w.in * size;
    float* to = scratch.band + (begin - top) * bands.pitch;
    if (w.stride == 1 && count > 0) {
      const int64_t before = std::max<int64_t>(0, w.pad), skipped = std::max<int64_t>(0, -w.pad);
      const int64_t columns = std::min(w.in - skipped, bands.phase - before);
      if (columns > 0)
        context.kernels.widen[elem]({from + skipped * size, to + before, count, columns, w.in, bands.pitch, 1.0f});
    }
    for (int64_t row = 0; w.stride > 1 && row < count; ++row) {
      context.kernels.widen[elem]({from + row * w.in * size, scratch.row, 1, w.in, w.in, w.in, 1.0f});
      spread(w, scratch.row, bands.phase, to + row * bands.pitch);
    }
    context.kernels.widen[elem]({weights + channel * taps * size, scratch.weights, 1, taps, taps, taps, 1.0f});
    for (int64_t tap = 0; tap < taps; ++tap) scratch.offsets[tap] = bands.offset(tap / w.kernel, tap % w.kernel);

    const int64_t at = (plane * pixels + first * w.out) * size;
    std::byte* out = context.at(y) + at;
    const bool ends = can_end(function);
    context.kernels.depthwise[elem]({scratch.band, scratch.offsets, scratch.weights,
                                     bias == nullptr ? nullptr : bias + channel,
                                     residual.given() ? added.at(context) + at : nullptr, out, taps, rows, w.out,
                                     h.stride * bands.pitch, ends ? ConvEnd{function, alpha, beta} : ConvEnd{}});
    if (!ends) context.kernels.unary[function][elem]({out, out, rows * w.out, alpha, beta});
  };
  const int64_t grain = std::max<int64_t>(1, kConvGrainTerms / (bands.rows * w.out * taps));
  context.pool.parallel_for(batch * groups * bands.count(), run, grain);
}

}  // namespace tcim_lite::cpu
