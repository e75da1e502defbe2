#include "backends/cpu/ops/blocks.h"

namespace tcim_lite::cpu {
namespace {

constexpr int64_t kLeastRowsOfBlock = 4;  // of a part
constexpr int64_t kPixelsAtATime = 128;   // to turn: they stay in the first cache

BlockWindow::Axis axis_of(const Window::Axis& axis) {
  return {axis.in, axis.kernel, axis.stride, axis.pad, axis.dilation};
}

}  // namespace

BlockRows::BlockRows(const Window& window, int64_t images, int64_t channels, int members)
    : window_(window), images_(images), channels_(channels), blocks_((channels + kBlock - 1) / kBlock) {
  // Few and large ones are cut into parts.
  const int64_t wanted = 2 * kTasksOfMember * members, all = images_ * blocks_;
  parts_ = std::clamp<int64_t>((wanted + all - 1) / all, 1, (window.h.out + kLeastRowsOfBlock - 1) / kLeastRowsOfBlock);
  rows_ = (window.h.out + parts_ - 1) / parts_;
  parts_ = (window.h.out + rows_ - 1) / rows_;
}

BlockRows::Part BlockRows::part(int64_t index) const {
  const int64_t first = index % parts_ * rows_, block = index / parts_, channel = block % blocks_ * kBlock;
  const int64_t width = std::min(kBlock, channels_ - channel);
  return {
      block / blocks_ * channels_ + channel,
      width,
      {axis_of(window_.h), axis_of(window_.w), width, first, std::min(rows_, window_.h.out - first), window_.w.out}};
}

int64_t turning_bytes() { return kPixelsAtATime * kBlock * 4; }

void turn_blocks(const RunContext& context, Elem elem, const std::byte* x, int64_t images, int64_t channels,
                 int64_t pixels, std::byte* y) {
  const int64_t size = elem_bytes(elem), blocks = (channels + kBlock - 1) / kBlock;
  const auto turn = [&](int64_t index, int member) {
    const int64_t channel = index % blocks * kBlock, width = std::min(kBlock, channels - channel);
    const int64_t at = (index / blocks * channels + channel) * pixels;
    for (int64_t pixel = 0; pixel < pixels; pixel += kPixelsAtATime) {
      const int64_t some = std::min(kPixelsAtATime, pixels - pixel);
      const std::byte* from = x + (at + pixel * width) * size;
      const float* sums = reinterpret_cast<const float*>(from);
      if (elem != kF32 || width < kBlock) {
        float* wide = reinterpret_cast<float*>(context.member(member));
        context.kernels.widen[elem]({from, wide, some, width, width, kBlock, 1.0f});
        sums = wide;
      }
      context.kernels.turned_store[elem]({sums, nullptr, nullptr, y + (at + pixel) * size, width, some, pixels});
    }
  };
  context.pool.parallel_for(images * blocks, turn, std::max<int64_t>(1, kGrainTerms / (8 * kBlock * pixels)));
}

}  // namespace tcim_lite::cpu
