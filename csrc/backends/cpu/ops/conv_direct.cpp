// Conv with lanes across outputs: taps are read where they lie, in the input itself, in padded fp32 planes or, of 1x1
// kernels, in packed pixels. Weights are turned once for many pixels.
#include "backends/cpu/ops/conv_direct.h"

#include <algorithm>

#include "backends/cpu/dispatch.h"
#include "backends/cpu/ops/blocks.h"
#include "backends/cpu/ops/windows.h"

namespace tcim_lite::cpu {
namespace {

// With fewer terms, outputs or pixels than packed weights have (graph/weight_format.h), to turn the weights or sums, or
// to pad x, takes too long.
constexpr int64_t kLargePlane = 8192;  // panels store two lines into each of many pages: there even few inputs and
                                       // outputs pay
constexpr int64_t kNarrowRow = 7, kMostRow = 4096;      // narrow: tiles of few pixels need more outputs
constexpr int64_t kFewPixels = 112, kManyPixels = 400;  // of a task: their sums stay in the second cache
constexpr int64_t kManyInside = 2048;                   // the same where weights are gathered for each part
constexpr int64_t kBlockTile = 14, kPixelUnit = 112;    // tiles have up to 14 pixels, vectors of planes 16
constexpr int64_t kPartFloats = 48 << 10;               // of a packed part: with its sums it fits the second cache

bool reads_inside(const Window::Axis& axis) {
  return axis.pad == 0 && (axis.out - 1) * axis.stride + (axis.kernel - 1) * axis.dilation < axis.in;
}

}  // namespace

ConvStep::Places::Places(const ConvStep& step, const KernelTable& kernels)
    : padded(step.window, 0), any_pixels(kernels.packs_pixels), inside(leaves_out_padding(step)) {
  const Window& window = step.window;
  const bool whole = reads_inside(window.h) && reads_inside(window.w);
  unit = step.x_in_blocks || inside ? kBlock : 1;
  packs = kernels.packs_pixels && window.taps() == 1 && whole && !step.x_in_blocks;
  in_place =
      inside ? step.x_in_blocks : !packs && (step.x_in_blocks || step.elem == kF32) && window.w.stride == 1 && whole;
  const bool flat = packs || window.h.out == 1 || is_identity(window);
  rows = flat ? 1 : window.h.out;
  row_pixels = flat ? window.out_pixels() : window.w.out;
  row_stride = in_place || inside ? window.h.stride * window.w.in : padded.row_step * padded.pitch;
  slab = row_pixels <= kNarrowRow ? kernels.narrow_slab : kSlab / 2;
  // Tiles of one vector of outputs lose little by slabs of one, which give few pixels more tasks.
  const int64_t tasks = step.groups * parts_of(step.outputs, slab) * parts_of(window.out_pixels(), kFewPixels);
  if (kernels.packs_pixels && tasks < kTasksOfMember * ThreadPool::instance().size()) slab = 16;
  const int64_t k = step.inputs(), most = std::min(kSlabTerms, kernels.slab_floats / slab);
  terms = round_up(parts_of(k, parts_of(k, most)), 16);
  if (packs) {
    // The member that multiplies a part with all weights packs it, where there are enough parts for all members.
    const int64_t fit = std::min(kManyPixels, kPartFloats / round_up(k, terms)), parts = parts_of(row_pixels, fit);
    const bool enough = fit >= kFewPixels && parts >= kTasksOfMember * ThreadPool::instance().size();
    part_pixels = enough ? round_up(parts_of(row_pixels, parts), kPackedTile) : 0;
  }
  if (packs) {
    plane = round_up(part_pixels > 0 ? part_pixels : row_pixels, kPackedTile);
  } else {
    plane = in_place || inside ? window.in_pixels() : padded.floats(window.h.out);
  }
  group = packs ? round_up(k, terms) * plane : round_up(step.channels, unit) * plane;
}

// Tasks: slabs of outputs times parts of the pixels, whole rows or a part of the only one.
struct ConvStep::DirectTasks {
  DirectTasks(const ConvStep& step, const Places& places, int64_t members) {
    const int64_t pixels = step.window.out_pixels(), wanted = kTasksOfMember * members;
    slabs = parts_of(step.outputs, places.slab);
    if (places.part_pixels > 0) {
      part_pixels = places.part_pixels;
      parts = parts_of(pixels, part_pixels);
      return;
    }
    const int64_t split = std::min(parts_of(wanted, step.groups * slabs), parts_of(pixels, kFewPixels));
    parts = std::max(split, parts_of(pixels, places.inside ? kManyInside : kManyPixels));
    // Members that share the pixels each read all weights.
    const int64_t values = step.channels * step.window.in_pixels() + step.outputs * pixels;
    const bool by_rows = step.makes_blocks() && has_rows_for(step.window, int(members));
    if (by_rows && step.inputs() * step.outputs < values) parts = std::max(parts, members);
    if (places.rows == 1) {
      const int64_t unit = places.any_pixels ? kPackedTile : step.makes_blocks() ? kBlockTile : kPixelUnit;
      part_pixels = parts == 1 ? pixels : round_up(parts_of(pixels, parts), unit);
    } else {
      part_pixels = parts_of(places.rows, parts) * places.row_pixels;
    }
    parts = parts_of(pixels, part_pixels);
  }

  int64_t slabs, parts, part_pixels;
};

bool ConvStep::is_direct() const {
  if (x_in_blocks || y_in_blocks || residual_in_blocks) return takes_blocks(*this);
  const bool large = kernels().packs_pixels && window.out_pixels() >= kLargePlane;
  if (quantized() || inputs() < (large ? kFewChannels : kPackedConvTerms)) return false;
  const bool whole = outputs % kBlockOutputs == 0 && window.taps() > 1;  // vectors, of terms enough for few outputs
  if (!whole && outputs < (large ? kFewChannels : kPackedConvOutputs)) return false;
  if (window.out_pixels() < kPackedConvPixels) return false;
  if (window.w.out > kMostRow && window.h.out > 1) return false;
  if (leaves_out_padding(*this)) return window.w.out >= kLeastRow;
  if (!PaddedRows::is_reasonable(window, kMostPaddedFloats)) return false;
  const Places places(*this, kernels());
  return places.row_pixels >= kLeastRow && (places.in_place || places.plane <= kMostPaddedFloats / (groups * channels));
}

std::vector<int64_t> ConvStep::direct_offsets() const {
  std::vector<int64_t> offsets;
  if (!is_direct()) return offsets;
  const Places places(*this, kernels());
  const Window::Axis &h = window.h, &w = window.w;
  for (int64_t channel = 0; channel < channels; ++channel) {
    for (int64_t i = 0; i < h.kernel; ++i) {
      for (int64_t j = 0; j < w.kernel; ++j) {
        int64_t tap = places.padded.offset(i, j);
        if (places.in_place) tap = i * h.dilation * w.in + j * w.dilation;
        if (places.inside) tap = (i * h.dilation - h.pad) * w.in + j * w.dilation - w.pad;
        offsets.push_back(places.of_channel(channel) + tap * places.unit);
      }
    }
  }
  return offsets;
}

ConvStep::SlabWeights::SlabWeights(const ConvStep& step, int64_t channel)
    : step(step),
      rows(step.format == WeightFormat::Dense ? 1 : kBlockOutputs),
      stride(rows == 1 ? step.inputs() * elem_bytes(step.elem) : block_bytes(step.format, step.inputs())),
      term(rows * elem_bytes(step.elem)),
      packed_stride(step.format == WeightFormat::LinearF32 ? stride / 4 : kSlabTerms * 16),
      first(step.weights + channel / rows * stride) {}

const float* ConvStep::SlabWeights::packed(const KernelTable& kernels, int64_t count, int64_t k, int64_t terms,
                                           float* scratch) const {
  const std::byte* stored = at(0, k);
  if (step.format == WeightFormat::LinearF32) return reinterpret_cast<const float*>(stored);
  if (step.format == WeightFormat::LinearF16)
    kernels.half_slab({reinterpret_cast<const uint16_t*>(stored), parts_of(count, 16), terms, stride / 2, scratch});
  else
    kernels.slab[step.elem]({stored, count, terms, step.inputs(), scratch});
  return scratch;
}

int64_t ConvStep::direct_shared_bytes() const {
  const Places places(*this, kernels());
  return places.in_place || places.part_pixels > 0 ? 0 : groups * places.group * 4;
}

int64_t ConvStep::direct_member_bytes() const {
  const Places places(*this, kernels());
  const int64_t pixels = DirectTasks(*this, places, ThreadPool::instance().size()).part_pixels;
  if (places.inside) return inside_member_bytes(places, pixels);
  return std::max(DirectScratch::bytes(places, pixels), window.w.in * 4);
}

void ConvStep::run_direct(const RunContext& context) const {
  const Places places(*this, context.kernels);
  const DirectTasks tasks(*this, places, context.pool.size());
  const int64_t plane_bytes = window.in_pixels() * elem_bytes(elem);
  const bool finite = places.inside && has_finite_weights(context);
  const auto part_at = [&](int64_t image, int64_t group, int64_t index) {
    const int64_t pixel = index * tasks.part_pixels;
    return Panel{image, group, pixel, std::min(tasks.part_pixels, window.out_pixels() - pixel)};
  };
  for (int64_t image = 0; image < batch; ++image) {
    const std::byte* planes =
        context.at(x) + image * (x_in_blocks ? x_blocks_bytes() : groups * channels * plane_bytes);
    if (places.part_pixels > 0) {
      const auto pack_and_multiply = [&](int64_t index, int member) {
        const int64_t group = index % groups;
        const Panel part = part_at(image, group, index / groups);
        const DirectScratch scratch(context.member(member), places, tasks.part_pixels);
        for (int64_t channel = 0; channel < channels; channel += places.terms)
          pack_block(context, places, planes + group * channels * plane_bytes, channel, part.pixel, part.pixel,
                     part.pixel + part.count, member, scratch.part);
        places.of_pixels(0, part.count, scratch.read_at);
        for (int64_t row = 0; row < outputs; row += places.slab)
          multiply_direct(context, places, scratch.part, part, row, scratch);
      };
      context.pool.parallel_for(groups * tasks.parts, pack_and_multiply);
      continue;
    }
    const float* source = prepare_direct(context, places, planes);
    const int64_t of_part = groups * tasks.slabs;
    const auto multiply = [&](int64_t index, int member) {
      const int64_t group = index % of_part / tasks.slabs, row = index % tasks.slabs * places.slab;
      const Panel part = part_at(image, group, index / of_part);
      const DirectScratch scratch(context.member(member), places, tasks.part_pixels);
      places.of_pixels(part.pixel, part.count, scratch.read_at);
      if (places.inside) sum_inside(context, places, source, part, row, scratch, finite);
      multiply_direct(context, places, source + group * places.group, part, row, scratch, nullptr, 0,
                      places.inside ? Holds::Sums : Holds::Nothing);
    };
    context.pool.parallel_runs(of_part * tasks.parts, multiply);
  }
  turn_result(context);
}

void ConvStep::multiply_direct(const RunContext& context, const Places& places, const float* source, const Panel& part,
                               int64_t row, const DirectScratch& scratch, float* to, int64_t to_pixels,
                               Holds holds) const {
  const bool blocks = makes_blocks();
  const int64_t size = blocks ? 4 : elem_bytes(elem), k = inputs(), pixels = window.out_pixels();
  const int64_t rows = std::min(places.slab, outputs - row), channel = part.group * outputs + row;
  const int64_t some = places.terms;
  const int64_t height = blocks ? round_up(outputs, kBlock) : groups * outputs;  // rows of planes or blocks of y
  const int64_t at = ((part.image * height + channel) * pixels + part.pixel * (blocks ? kBlock : 1)) * size;
  std::byte* out = to == nullptr ? result(context) + at : reinterpret_cast<std::byte*>(to);
  const int64_t block_floats = (to == nullptr ? pixels : to_pixels) * kBlock;
  const std::byte* summand = residual.given() ? added.at(context) + at : nullptr;
  const float* biases = bias == nullptr ? nullptr : bias + channel;
  const int64_t vectors = parts_of(rows, 16);
  const SlabWeights factors(*this, channel);
  int64_t first = holds == Holds::Sums ? k : 0;
  do {
    const int64_t terms = std::min(some, k - first);
    const bool turns = holds == Holds::Nothing || format == WeightFormat::LinearF32;
    DirectArgs args{source,
                    scratch.read_at,
                    direct_offsets_.data() + first,
                    turns ? factors.packed(context.kernels, rows, first, terms, scratch.weights) : scratch.weights,
                    factors.packed_stride,
                    scratch.acc,
                    terms,
                    vectors,
                    part.count,
                    first == 0};
    args.step = places.unit;
    // The next terms, or the first of the slab that this member is likely to take next.
    const bool ends = first + some >= k;
    const bool fetches = !ends || row + places.slab + rows <= outputs;
    args.fetches[0] = {ends ? factors.at(places.slab, 0) : factors.at(0, first + some), parts_of(rows, factors.rows),
                       factors.stride, fetches ? parts_of(some * factors.term, 64) : 0};
    if (ends && !blocks) {  // stores into blocks follow each other: they need no fetch
      const int64_t lines = parts_of(part.count * size, 64);
      args.fetches[1] = {out, rows, pixels * size, lines};
      if (summand) args.fetches[2] = {summand, rows, pixels * size, lines};
    }
    if (ends && blocks)
      context.kernels.direct_blocks({args, biases, reinterpret_cast<const float*>(summand),
                                     reinterpret_cast<float*>(out), rows, block_floats, elem, stored_end()});
    else if (terms > 0)
      context.kernels.direct(args);
    first += some;
  } while (first < k);
  if (blocks) {
    for (int64_t i = 0; i < vectors; ++i)
      end_blocks(context, reinterpret_cast<float*>(out) + i * block_floats, part.count);
    return;
  }
  context.kernels.turned_store[elem]({scratch.acc, biases, summand, out, rows, part.count, pixels, stored_end()});
  end_planes(context, out, rows, part.count);
}

}  // namespace tcim_lite::cpu
