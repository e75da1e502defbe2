// Conv whose taps lie mostly in the padding, as dilated ones may: pixels that read the same taps of the input are
// multiplied with the weights of those alone. The products left out are of 0, which change a sum in two cases only: the
// weight is no finite number, or the sum is -0, which takes a product that underflows. Then all are computed.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>

#include "backends/cpu/dispatch.h"
#include "backends/cpu/ops/conv_direct.h"

namespace tcim_lite::cpu {
namespace {

constexpr int64_t kMostInsideTaps = 32;        // of two channels: their weights fit a slab's scratch
constexpr int64_t kLeastPixelsOfRun = 4;       // of a row: fewer take as long, the time until sums can be added to
constexpr int64_t kElementsToCheck = 1 << 16;  // at a time

// Pixels times taps of an axis; fewer than `least` pixels count as that many.
int64_t inside_products(const Window::Axis& axis, int64_t least) {
  int64_t found = 0;
  for (const TapRun& run : tap_runs(axis))
    found += std::max(run.end - run.first, least) * (run.end_tap - run.first_tap);
  return found;
}

int64_t most_taps(const std::vector<TapRun>& runs) {
  int64_t found = 1;
  for (const TapRun& run : runs) found = std::max(found, run.end_tap - run.first_tap);
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
  // An even number of channels whose terms fit the scratch, as an fp16 term has its pair beside it.
  const bool stored = !all && format == WeightFormat::LinearF32;
  const int64_t most = stored ? most_taps(row_runs_) * most_taps(column_runs_) : taps,
                some = places.terms / most / 2 * 2;
  for (int64_t channel = 0; channel < channels; channel += some) {
    const int64_t here = std::min(some, channels - channel), first = channel * taps;
    const float* packed = factors.packed(context.kernels, rows, first, here * taps, scratch.weights);
    const int64_t next_count = std::min(some, channels - channel - here);
    const std::byte* next = factors.at(0, first + here * taps);
    const int64_t lines = parts_of(next_count * taps * factors.term, 64);
    // The terms of pixels that read the same taps, of which the first of a row lies at `at`; how many there are.
    const auto gather = [&](const TapRun& across, const TapRun& along, int64_t at) {
      int64_t count = 0;
      const auto take = [&](int64_t term, int64_t offset) {
        for (int64_t v = 0; v < vectors; ++v)
          std::memcpy(scratch.packed + (v * kSlabTerms + count) * 16, packed + v * factors.packed_stride + term * 16,
                      64);
        scratch.offsets[count++] = offset;
      };
      for (int64_t c = 0; c < here; ++c) {
        for (int64_t i = all ? 0 : across.first_tap; i < (all ? window.h.kernel : across.end_tap); ++i) {
          for (int64_t j = all ? 0 : along.first_tap; j < (all ? window.w.kernel : along.end_tap); ++j) {
            const int64_t term = c * taps + i * window.w.kernel + j;
            const bool inside = across.has(i) && along.has(j);
            take(term, inside ? direct_offsets_[first + term] : scratch.zeros - source - at);
          }
        }
      }
      return count;
    };
    for (const TapRun& across : row_runs_) {
      for (const TapRun& along : column_runs_) {
        int64_t terms = -1;
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
