// Conv of values in blocks of channels: their padding, the layers channel by channel, and results that are read as
// planes.
#include "backends/cpu/ops/blocks.h"
#include "backends/cpu/ops/conv_direct.h"

namespace tcim_lite::cpu {
namespace {

constexpr int64_t kElementsToPad = 1 << 14;  // to pad at a time

}  // namespace

int64_t ConvStep::blocks_bytes() const {
  if (!makes_blocks() || y_in_blocks) return 0;
  return round_up(batch * groups * outputs * window.out_pixels() * elem_bytes(elem), 64);
}

std::byte* ConvStep::result(const RunContext& context) const {
  return makes_blocks() && !y_in_blocks ? context.shared_scratch : context.at(y);
}

void ConvStep::turn_result(const RunContext& context) const {
  if (!makes_blocks() || y_in_blocks) return;
  turn_blocks(context, elem, context.shared_scratch, batch, groups * outputs, window.out_pixels(), context.at(y));
}

// Each block of an image with its padding, as fp32 and always 16 wide.
void ConvStep::pad_blocks(const RunContext& context, const Places& places, const std::byte* image,
                          float* padded) const {
  const Window::Axis& w = window.w;
  const PaddedRows& rows = places.padded;
  const int64_t blocks = parts_of(channels, kBlock), all = rows.in_rows(window.h.out),
                step = rows.kept ? window.h.stride : 1;
  const int64_t some = parts_of(all, blocks >= 4 * context.pool.size() ? 1 : std::min<int64_t>(8, all));
  const int64_t parts = parts_of(all, some), size = elem_bytes(elem);
  const auto pad = [&](int64_t index, int) {
    const int64_t channel = index / parts * kBlock, width = std::min(kBlock, channels - channel);
    const std::byte* from = image + channel * window.in_pixels() * size;
    for (int64_t row = index % parts * some, end = std::min(row + some, all); row < end; ++row) {
      float* to = padded + channel * places.plane + row * rows.pitch * kBlock;
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
        const std::byte* read = from + (in_row * w.in + phase - w.pad + first * w.stride) * width * size;
        if (w.stride == 1 && width == kBlock)
          context.kernels.widen[elem]({read, to + first * kBlock, 1, (last - first) * kBlock, 0, 0, 1.0f});
        else
          context.kernels.widen[elem]({read, to + first * kBlock, last - first, width, w.stride * width, kBlock, 1.0f});
      }
    }
  };
  context.pool.parallel_for(blocks * parts, pad, parts_of(kElementsToPad, places.plane * kBlock / parts));
}

// The blocks of a part of a 1x1 Conv, as fp32 and 16 wide.
void ConvStep::widen_blocks(const RunContext& context, const Places& places, const std::byte* image, const Panel& part,
                            float* wide) const {
  const int64_t size = elem_bytes(elem);
  for (int64_t channel = 0; channel < channels; channel += kBlock) {
    const int64_t width = std::min(kBlock, channels - channel);
    const std::byte* from = image + (channel * window.in_pixels() + part.pixel * width) * size;
    float* to = wide + channel * places.plane;
    if (width == kBlock)
      context.kernels.widen[elem]({from, to, 1, part.count * kBlock, 0, 0, 1.0f});
    else
      context.kernels.widen[elem]({from, to, part.count, width, width, kBlock, 1.0f});
  }
}

int64_t ConvStep::depthwise_blocks_bytes() const { return std::max(kSlabTerms * kBlock * 4, turning_bytes()); }

void ConvStep::run_depthwise_blocks(const RunContext& context) const {
  const int64_t size = elem_bytes(elem), taps = window.taps(), pixels = window.out_pixels();
  const BlockRows tasks(window, batch, groups, context.pool.size());
  std::byte* to = result(context);
  const auto run = [&](int64_t index, int member) {
    const BlockRows::Part part = tasks.part(index);
    const int64_t channel = part.channel % groups, width = part.width;
    float* factors = reinterpret_cast<float*>(context.member(member));
    context.kernels.slab[elem]({weights + channel * taps * size, width, taps, taps, factors});
    const int64_t at = (part.channel * pixels + part.window.first * window.w.out * width) * size;
    std::byte* out = to + at;
    context.kernels.depthwise_block[elem]({part.window, context.at(x) + part.channel * window.in_pixels() * size,
                                           factors, bias == nullptr ? nullptr : bias + channel,
                                           residual.given() ? added.at(context) + at : nullptr, out, stored_end()});
    const int64_t count = part.window.rows * window.w.out * width;
    if (!can_end(function)) context.kernels.unary[function][elem]({out, out, count, alpha, beta});
  };
  context.pool.parallel_for(tasks.count(), run);
  turn_result(context);
}

}  // namespace tcim_lite::cpu
