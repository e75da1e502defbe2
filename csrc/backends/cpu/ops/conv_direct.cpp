// Conv with lanes across outputs: taps are read where they lie, in the input itself or in padded fp32 planes, and
// weights are turned once for many pixels.
#include <algorithm>

#include "backends/cpu/dispatch.h"
#include "backends/cpu/ops/conv.h"
#include "backends/cpu/ops/padded.h"
#include "backends/cpu/ops/windows.h"

namespace tcim_lite::cpu {
namespace {

constexpr int64_t kLeastInputs = 48, kLeastOutputs = 33;  // fewer: turning the sums, or padding x, takes too long
constexpr int64_t kLeastPixels = 32, kLeastRow = 4;       // fewer: turning the weights does, or tiles are too small
constexpr int64_t kMostFloats = 1 << 24;                  // of padded planes
constexpr int64_t kNarrowRow = 7, kMostRow = 4096;        // narrow: tiles of few pixels need more outputs
constexpr int64_t kFewPixels = 112, kManyPixels = 400;    // of a task: their sums stay in the second cache
constexpr int64_t kPixelUnit = 112;                       // tiles have up to 14 pixels, vectors 16
constexpr int64_t kGrainElements = 1 << 14;               // to pad at a time

int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }
int64_t parts_of(int64_t value, int64_t unit) { return (value + unit - 1) / unit; }

bool reads_inside(const Window::Axis& axis) {
  return axis.pad == 0 && (axis.out - 1) * axis.stride + (axis.kernel - 1) * axis.dilation < axis.in;
}

}  // namespace

// Where the pixels read the first channel with the first tap.
struct ConvStep::Places {
  explicit Places(const ConvStep& step) : padded(step.window, 0) {
    const Window& window = step.window;
    in_place = step.elem == kF32 && window.w.stride == 1 && reads_inside(window.h) && reads_inside(window.w);
    const bool flat = window.h.out == 1 || is_identity(window);
    rows = flat ? 1 : window.h.out;
    row_pixels = flat ? window.out_pixels() : window.w.out;
    row_stride = in_place ? window.h.stride * window.w.in : padded.row_step * padded.pitch;
    plane = in_place ? window.in_pixels() : padded.floats(window.h.out);
  }

  int64_t of_pixel(int64_t pixel) const { return pixel / row_pixels * row_stride + pixel % row_pixels; }

  PaddedRows padded;
  bool in_place;
  int64_t rows, row_pixels, row_stride, plane;
};

// Tasks: slabs of outputs times parts of the pixels, whole rows or a part of the only one.
struct ConvStep::DirectTasks {
  DirectTasks(const ConvStep& step, const Places& places, const KernelTable& kernels, int64_t members) {
    const int64_t pixels = step.window.out_pixels(), wanted = kTasksOfMember * members;
    slab = places.row_pixels <= kNarrowRow ? kernels.narrow_slab : kSlab / 2;
    terms = std::min(kSlabTerms, kernels.slab_floats / slab);
    slabs = parts_of(step.outputs, slab);
    const int64_t split = std::min(parts_of(wanted, step.groups * slabs), parts_of(pixels, kFewPixels));
    parts = std::max(split, parts_of(pixels, kManyPixels));
    if (places.rows == 1) {
      part_pixels = parts == 1 ? pixels : round_up(parts_of(pixels, parts), kPixelUnit);
    } else {
      part_pixels = parts_of(places.rows, parts) * places.row_pixels;
    }
    parts = parts_of(pixels, part_pixels);
  }

  int64_t slab, terms;  // outputs, and their terms at a time: they fit the first cache
  int64_t slabs, parts, part_pixels;
};

bool ConvStep::is_direct() const {
  if (quantized() || inputs() < kLeastInputs || outputs < kLeastOutputs || window.out_pixels() < kLeastPixels)
    return false;
  if (window.w.out > kMostRow && window.h.out > 1) return false;
  if (!PaddedRows::is_reasonable(window, kMostFloats)) return false;
  const Places places(*this);
  return places.row_pixels >= kLeastRow && (places.in_place || places.plane <= kMostFloats / (groups * channels));
}

std::vector<int64_t> ConvStep::direct_offsets() const {
  std::vector<int64_t> offsets;
  if (!is_direct()) return offsets;
  const Places places(*this);
  const Window::Axis &h = window.h, &w = window.w;
  for (int64_t channel = 0; channel < channels; ++channel) {
    for (int64_t i = 0; i < h.kernel; ++i) {
      for (int64_t j = 0; j < w.kernel; ++j) {
        const int64_t tap = places.in_place ? i * h.dilation * w.in + j * w.dilation : places.padded.offset(i, j);
        offsets.push_back(channel * places.plane + tap);
      }
    }
  }
  return offsets;
}

int64_t ConvStep::direct_shared_bytes() const {
  const Places places(*this);
  return places.in_place ? 0 : groups * channels * places.plane * 4;
}

int64_t ConvStep::direct_member_bytes() const {
  const Places places(*this);
  const int64_t pixels = DirectTasks(*this, places, kernels(), ThreadPool::instance().size()).part_pixels;
  return std::max((kSlabTerms + pixels) * kSlab * 4 + pixels * 8, window.w.in * 4);
}

void ConvStep::run_direct(const RunContext& context) const {
  const Places places(*this);
  const DirectTasks tasks(*this, places, context.kernels, context.pool.size());
  const int64_t size = elem_bytes(elem), planes = groups * channels, image_bytes = planes * window.in_pixels() * size;
  for (int64_t image = 0; image < batch; ++image) {
    const std::byte* from = context.at(x) + image * image_bytes;
    const auto* source = reinterpret_cast<const float*>(from);
    if (!places.in_place) {
      auto* padded = reinterpret_cast<float*>(context.shared_scratch);
      const auto pad = [&](int64_t plane, int member) {
        places.padded.fill(context, elem, from + plane * window.in_pixels() * size, 0, window.h.out,
                           reinterpret_cast<float*>(context.member(member)), padded + plane * places.plane);
      };
      context.pool.parallel_for(planes, pad, parts_of(kGrainElements, places.plane));
      source = padded;
    }
    const int64_t of_part = groups * tasks.slabs;
    const auto multiply = [&](int64_t index, int member) {
      const int64_t group = index % of_part / tasks.slabs, row = index % tasks.slabs * tasks.slab;
      const int64_t pixel = index / of_part * tasks.part_pixels;
      multiply_direct(context, places, tasks, source + group * channels * places.plane,
                      {image, group, pixel, std::min(tasks.part_pixels, window.out_pixels() - pixel)}, row, member);
    };
    context.pool.parallel_for(of_part * tasks.parts, multiply);
  }
}

void ConvStep::multiply_direct(const RunContext& context, const Places& places, const DirectTasks& tasks,
                               const float* source, const Panel& part, int64_t row, int member) const {
  auto* packed = reinterpret_cast<float*>(context.member(member));
  float* acc = packed + kSlabTerms * kSlab;
  auto* read_at = reinterpret_cast<int64_t*>(acc + part.count * kSlab);
  for (int64_t i = 0; i < part.count; ++i) read_at[i] = places.of_pixel(part.pixel + i);
  const int64_t size = elem_bytes(elem), k = inputs(), pixels = window.out_pixels();
  const int64_t rows = std::min(tasks.slab, outputs - row), channel = part.group * outputs + row;
  const int64_t some = round_up(parts_of(k, parts_of(k, tasks.terms)), 16);
  const std::byte* factors = weights + channel * k * size;
  for (int64_t first = 0; first < k; first += some) {
    const int64_t terms = std::min(some, k - first);
    context.kernels.slab[elem]({factors + first * size, rows, terms, k, packed});
    // The next terms, or the first of the slab that this member is likely to take next.
    const bool ends = first + some >= k;
    const int64_t ahead = ends ? context.pool.size() * tasks.slab * k - first : some;
    const bool fetches = !ends || row + context.pool.size() * tasks.slab + rows <= outputs;
    const int64_t lines = fetches ? parts_of(some * size, 64) : 0;
    const FetchArgs fetch{factors + (first + ahead) * size, rows, k * size, lines};
    context.kernels.direct({source, read_at, direct_offsets_.data() + first, packed, acc, terms, parts_of(rows, 16),
                            part.count, first == 0, fetch});
  }
  const int64_t at = ((part.image * groups * outputs + channel) * pixels + part.pixel) * size;
  std::byte* out = context.at(y) + at;
  const bool ends = can_end(function);
  context.kernels.turned_store[elem]({acc, bias == nullptr ? nullptr : bias + channel,
                                      residual.given() ? added.at(context) + at : nullptr, out, rows, part.count,
                                      pixels, ends ? ConvEnd{function, alpha, beta} : ConvEnd{}});
  for (int64_t i = 0; !ends && i < rows; ++i) {
    std::byte* of_row = out + i * pixels * size;
    context.kernels.unary[function][elem]({of_row, of_row, part.count, alpha, beta});
  }
}

}  // namespace tcim_lite::cpu
