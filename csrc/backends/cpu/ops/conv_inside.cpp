// Conv whose taps lie mostly in the padding, as dilated ones may: pixels that read the same taps of the input are
// multiplied with the weights of those alone. The products left out are of 0, which change a sum in two cases only: the
// weight is no finite number, or the sum is -0, which takes a product that underflows. Then all are computed.
#include <algorithm>
#include <atomic>
#include <bit>

#include "backends/cpu/dispatch.h"
#include "backends/cpu/ops/conv_direct.h"

namespace tcim_lite::cpu {
namespace {

constexpr int64_t kMostInsideTaps = 32;        // see kLeastInsideChannels
constexpr int64_t kLeastPixelsOfRun = 4;       // of a row: fewer take as long, the time until sums can be added to
constexpr int64_t kElementsToCheck = 1 << 16;  // at a time
constexpr int64_t kLeastInsideChannels = 2;    // gathered at a time: an fp16 term has its pair beside it
static_assert(kLeastInsideChannels * kMostInsideTaps <= kSlabTerms, "they fit the scratch");

// Pixels times taps of an axis; fewer than `least` pixels count as that many.
int64_t inside_products(const Window::Axis& axis, int64_t least) {
  int64_t found = 0;
  for (const TapRun& run : tap_runs(axis))
    found += std::max(run.end - run.first, least) * (run.end_tap - run.first_tap);
  return found;
}

// Of a pixel that does not read all taps, at most.
int64_t most_gathered(const std::vector<TapRun>& rows, const std::vector<TapRun>& columns, int64_t all) {
  int64_t found = 1;
  for (const TapRun& across : rows) {
    for (const TapRun& along : columns) {
      const int64_t taps = across.taps() * along.taps();
      if (taps < all) found = std::max(found, taps);
    }
  }
  return found;
}

}  // namespace

std::vector<TapRun> tap_runs(const Window::Axis& axis) {
  std::vector<TapRun> runs;
  for (int64_t i = 0; i < axis.out; ++i) {
    const int64_t top = i * axis.stride - axis.pad;  // what the first tap reads
    const int64_t first = std::clamp<int64_t>(parts_of(-top, axis.dilation), 0, axis.kernel);
    const int64_t end = std::clamp(parts_of(axis.in - top, axis.dilation), first, axis.kernel);
    if (runs.empty() || runs.back().first_tap != first || runs.back().end_tap != end)
      runs.push_back({i, i, first, end});
    runs.back().end = i + 1;
  }
  return runs;
}

bool leaves_out_padding(const ConvSpec& conv) {
  const Window::Axis &h = conv.window.h, &w = conv.window.w;
  if (conv.quantized() || conv.groups != 1 || conv.channels < kFewChannels || conv.window.taps() > kMostInsideTaps)
    return false;
  if (h.upsample > 1 || w.upsample > 1 || w.stride > 1) return false;
  return 4 * inside_products(h, 1) * inside_products(w, kLeastPixelsOfRun) <=
         3 * conv.window.taps() * conv.window.out_pixels();
}

struct ConvStep::InsideScratch : DirectScratch {
  InsideScratch(const DirectScratch& base, const Places& places)
      : DirectScratch(base),
        packed(part),
        offsets(reinterpret_cast<int64_t*>(packed + kSlabTerms * places.slab)),
        zeros(reinterpret_cast<float*>(offsets + kSlabTerms)) {}

  float* packed;     // weights of some terms, as SlabArgs
  int64_t* offsets;  // of these terms
  float* zeros;      // [pixels of a row, kBlock]
};

int64_t ConvStep::inside_member_bytes(const Places& places, int64_t pixels) const {
  return DirectScratch::bytes(places, pixels) + kSlabTerms * (places.slab * 4 + 8) + window.w.out * kBlock * 4;
}

// Faults change weights between two runs.
bool ConvStep::has_finite_weights(const RunContext& context) const {
  const bool dense = format == WeightFormat::Dense;
  const int64_t count = dense ? outputs * inputs() : packed_bytes(format, outputs, inputs()) / elem_bytes(elem);
  std::atomic<bool> finite = true;
  context.pool.parallel_for(parts_of(count, kElementsToCheck), [&](int64_t index, int) {
    const int64_t first = index * kElementsToCheck, some = std::min(kElementsToCheck, count - first);
    const std::byte* these = weights + first * elem_bytes(elem);
    if (!context.kernels.all_finite[elem]({these, 1, some, some})) finite = false;
  });
  return finite;
}

// As multiply_direct, the sums alone.
void ConvStep::sum_inside(const RunContext& context, const Places& places, const float* source, const Panel& part,
                          int64_t row, const DirectScratch& scratch, bool finite) const {
  const InsideScratch own(scratch, places);
  if (finite) {
    sum_taps(context, places, source, part, row, own, false);
    const float *begin = scratch.acc, *end = begin + part.count * round_up(std::min(places.slab, outputs - row), 16);
    if (std::none_of(begin, end, [](float sum) { return std::bit_cast<uint32_t>(sum) == 1u << 31; })) return;
  }
  std::fill_n(own.zeros, window.w.out * kBlock, 0.0f);
  sum_taps(context, places, source, part, row, own, true);
}

// With `all`, taps in the padding read zeros.
void ConvStep::sum_taps(const RunContext& context, const Places& places, const float* source, const Panel& part,
                        int64_t row, const InsideScratch& scratch, bool all) const {
  const int64_t taps = window.taps(), width = window.w.out, pixels_end = part.pixel + part.count;
  const int64_t rows = std::min(places.slab, outputs - row), vectors = parts_of(rows, 16);
  const SlabWeights factors(*this, row);
  // Channels whose gathered terms fit the first cache: whole blocks of x where two do, or an even number.
  const bool stored = !all && format == WeightFormat::LinearF32;
  const int64_t fit = places.terms / (stored ? most_gathered(row_runs_, column_runs_, taps) : taps),
                unit = fit < 2 * kBlock ? kLeastInsideChannels : kBlock,
                some = std::max(fit / unit * unit, kLeastInsideChannels);
  for (int64_t channel = 0; channel < channels; channel += some) {
    const int64_t here = std::min(some, channels - channel), first = channel * taps;
    const float* packed = factors.packed(context.kernels, rows, first, here * taps, scratch.weights);
    const int64_t next_count = std::min(some, channels - channel - here);
    const std::byte* next = factors.at(0, first + here * taps);
    const int64_t lines = parts_of(next_count * taps * factors.term, 64);
    // The terms of pixels that read the same taps, of which the first of a row lies at `at`; how many there are.
    const auto gather = [&](const TapRun& across, const TapRun& along, int64_t at) {
      const int64_t top = all ? 0 : across.first_tap, bottom = all ? window.h.kernel : across.end_tap;
      const int64_t left = all ? 0 : along.first_tap, right = all ? window.w.kernel : along.end_tap;
      const int64_t of_row = right - left, kept = (bottom - top) * of_row;
      for (int64_t i = top; i < bottom; ++i) {
        const int64_t tap = i * window.w.kernel + left, to = (i - top) * of_row;
        for (int64_t v = 0; v < vectors; ++v)
          context.kernels.widen[kF32]({packed + v * factors.packed_stride + tap * 16,
                                       scratch.packed + (v * kSlabTerms + to) * 16, here, of_row * 16, taps * 16,
                                       kept * 16, 1.0f});
        for (int64_t c = 0; c < here; ++c) {
          for (int64_t j = left; j < right; ++j) {
            const bool inside = across.has(i) && along.has(j);
            scratch.offsets[c * kept + to + j - left] =
                inside ? direct_offsets_[first + c * taps + i * window.w.kernel + j] : scratch.zeros - source - at;
          }
        }
      }
      return here * kept;
    };
    for (const TapRun& across : row_runs_) {
      for (const TapRun& along : column_runs_) {
        const bool gathers = all || across.taps() * along.taps() < taps;
        int64_t terms = gathers ? -1 : here * taps;
        for (int64_t y = std::max(across.first, part.pixel / width); y < across.end && y * width < pixels_end; ++y) {
          const int64_t begin = std::max(along.first + y * width, part.pixel) - part.pixel;
          const int64_t end = std::min(along.end + y * width, pixels_end) - part.pixel;
          if (begin >= end) continue;
          if (all || terms < 0) terms = gather(across, along, scratch.read_at[begin]);
          DirectArgs args{source,          scratch.read_at + begin,
                          scratch.offsets, scratch.packed,
                          kSlabTerms * 16, scratch.acc + begin * vectors * 16,
                          terms,           vectors,
                          end - begin,     first == 0};
          if (!gathers) args.offsets = direct_offsets_.data() + first, args.packed = packed;
          if (!gathers) args.packed_stride = factors.packed_stride;
          args.step = kBlock;
          // A share of the weights that come next.
          const int64_t line = lines * begin / part.count, behind = lines * end / part.count;
          args.fetches[0] = {next + 64 * line, parts_of(rows, factors.rows), factors.stride, behind - line};
          context.kernels.direct(args);
        }
      }
    }
  }
}

}  // namespace tcim_lite::cpu
