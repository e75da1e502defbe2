#include "backends/cpu/ops/blocks.h"

#include "backends/cpu/ops/units.h"

namespace tcim_lite::cpu {
namespace {

constexpr int64_t kLeastRowsOfBlock = 4;  // of a part
constexpr int64_t kPixelsAtATime = 128;   // to turn: they stay in the first cache

}  // namespace

BlockRows::BlockRows(const Window& window, int64_t images, int64_t channels, int members)
    : window_(window), images_(images), channels_(channels), blocks_(parts_of(channels, kBlock)) {
  // Few and large ones are cut into parts.
  const int64_t wanted = 2 * kTasksOfMember * members, all = images_ * blocks_;
  const int64_t least = has_rows_for(window, members) ? members : 1;
  parts_ =
      std::clamp<int64_t>(parts_of(wanted, all), least, std::max(least, parts_of(window.h.out, kLeastRowsOfBlock)));
  rows_ = parts_of(window.h.out, parts_);
  parts_ = parts_of(window.h.out, rows_);
}

BlockRows::Part BlockRows::part(int64_t index) const {
  const int64_t all = images_ * blocks_, first = index / all * rows_;
  const int64_t block = index % all, channel = block % blocks_ * kBlock;
  return {block,
          channel,
          std::min(kBlock, channels_ - channel),
          {axis_of(window_.h), axis_of(window_.w), first, std::min(rows_, window_.h.out - first), window_.w.out}};
}

void store_turned(const KernelTable& kernels, Elem elem, TurnedStoreArgs args) {
  const int64_t size = elem_bytes(elem), step = round_up(args.rows, kBlock) * kPixelsAtATime;
  for (int64_t left = args.cols; left > 0; left -= kPixelsAtATime) {
    args.cols = std::min(kPixelsAtATime, left);
    kernels.turned_store[elem](args);
    args.acc += step;
    args.y = static_cast<std::byte*>(args.y) + kPixelsAtATime * size;
    if (args.residual) args.residual = static_cast<const std::byte*>(args.residual) + kPixelsAtATime * size;
  }
}

void turn_blocks(const RunContext& context, Elem elem, const float* x, int64_t images, int64_t channels, int64_t pixels,
                 std::byte* y) {
  const int64_t size = elem_bytes(elem), blocks = parts_of(channels, kBlock);
  const auto turn = [&](int64_t index, int) {
    const int64_t channel = index % blocks * kBlock, width = std::min(kBlock, channels - channel);
    const float* from = x + index * pixels * kBlock;
    std::byte* to = y + (index / blocks * channels + channel) * pixels * size;
    store_turned(context.kernels, elem, {from, nullptr, nullptr, to, width, pixels, pixels});
  };
  context.pool.parallel_for(images * blocks, turn, std::max<int64_t>(1, kGrainTerms / (8 * kBlock * pixels)));
}

}  // namespace tcim_lite::cpu
