// Conv of values in blocks of channels: their padding, the layers channel by channel, and results that are read as
// planes.
#include "backends/cpu/ops/blocks.h"
#include "backends/cpu/ops/conv_direct.h"

namespace tcim_lite::cpu {
namespace {

constexpr int64_t kPixelsToEnd = 64;  // at a time: they stay in the first cache

}  // namespace
int64_t ConvStep::x_blocks_bytes() const { return round_up(groups * channels, kBlock) * window.in_pixels() * 4; }

int64_t ConvStep::blocks_bytes() const {
  if (!makes_blocks() || y_in_blocks) return 0;
  return batch * round_up(groups * outputs, kBlock) * window.out_pixels() * 4;
}

std::byte* ConvStep::result(const RunContext& context) const {
  return makes_blocks() && !y_in_blocks ? context.shared_scratch : context.at(y);
}

void ConvStep::turn_result(const RunContext& context) const {
  if (!makes_blocks() || y_in_blocks) return;
  turn_blocks(context, elem, reinterpret_cast<const float*>(context.shared_scratch), batch, groups * outputs,
              window.out_pixels(), context.at(y));
}

// Each block of an image with its padding.
void ConvStep::pad_blocks(const RunContext& context, const Places& places, const float* image, float* padded) const {
  const Window::Axis& w = window.w;
  const PaddedRows& rows = places.padded;
  const int64_t blocks = parts_of(channels, kBlock), all = rows.in_rows(window.h.out),
                step = rows.kept ? window.h.stride : 1;
  const int64_t cuts = has_rows_for(window, context.pool.size()) ? context.pool.size() : 1;
  const int64_t some = parts_of(all, blocks >= kTasksOfMember * context.pool.size() ? cuts : std::min<int64_t>(8, all));
  const int64_t parts = parts_of(all, some);
  const auto pad = [&](int64_t index, int) {
    const int64_t block = index % blocks;
    const float* from = image + block * window.in_pixels() * kBlock;
    for (int64_t row = index / blocks * some, end = std::min(row + some, all); row < end; ++row) {
      float* to = padded + (block * places.plane + row * rows.pitch) * kBlock;
      const int64_t in_row = row * step - window.h.pad;
      if (in_row < 0 || in_row >= window.h.in) {
        std::fill_n(to, rows.pitch * kBlock, 0.0f);
        continue;
      }
      for (int64_t phase = 0; phase < rows.phases; ++phase, to += rows.phase * kBlock) {
        // Columns of the input: phase - pad + i * stride.
        const int64_t first = std::min(rows.phase, std::max<int64_t>(0, parts_of(w.pad - phase, w.stride)));
        const int64_t last = std::clamp(parts_of(w.in + w.pad - phase, w.stride), first, rows.phase);
        std::fill_n(to, first * kBlock, 0.0f);
        std::fill_n(to + last * kBlock, (rows.phase - last) * kBlock, 0.0f);
        const float* read = from + (in_row * w.in + phase - w.pad + first * w.stride) * kBlock;
        const int64_t count = w.stride == 1 ? 1 : last - first,
                      floats = w.stride == 1 ? (last - first) * kBlock : kBlock;
        context.kernels.widen[kF32]({read, to + first * kBlock, count, floats, w.stride * kBlock, kBlock, 1.0f});
      }
    }
  };
  context.pool.parallel_runs(blocks * parts, pad);
}

void ConvStep::end_blocks(const RunContext& context, float* block, int64_t pixels) const {
  if (can_end(function)) return;
  for (; pixels > 0; pixels -= kPixelsToEnd, block += kPixelsToEnd * kBlock) {
    const int64_t count = std::min(pixels, kPixelsToEnd) * kBlock;
    context.kernels.unary[function][kF32]({block, block, count, alpha, beta, 1, 0, 0, elem == kF16});
  }
}

void ConvStep::run_depthwise_blocks(const RunContext& context) const {
  const int64_t size = elem_bytes(elem), taps = window.taps(), pixels = window.out_pixels();
  const BlockRows tasks(window, batch, groups, context.pool.size());
  const auto* from = reinterpret_cast<const float*>(context.at(x));
  const auto* summands = residual.given() ? reinterpret_cast<const float*>(added.at(context)) : nullptr;
  auto* to = reinterpret_cast<float*>(result(context));
  const auto run = [&](int64_t index, int member) {
    const BlockRows::Part part = tasks.part(index);
    float* factors = reinterpret_cast<float*>(context.member(member));
    context.kernels.slab[elem]({weights + part.channel * taps * size, part.width, taps, taps, factors});
    const int64_t at = (part.block * pixels + part.window.first * window.w.out) * kBlock;
    context.kernels.depthwise_block({part.window, from + part.block * window.in_pixels() * kBlock, factors,
                                     bias == nullptr ? nullptr : bias + part.channel,
                                     summands == nullptr ? nullptr : summands + at, to + at, part.width, elem,
                                     stored_end()});
    end_blocks(context, to + at, part.window.rows * window.w.out);
  };
  context.pool.parallel_runs(tasks.count(), run);
  turn_result(context);
}

}  // namespace tcim_lite::cpu
