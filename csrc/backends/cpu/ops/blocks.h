// Values in blocks of channels: parts of them, and the way back to planes.
#pragma once

#include "backends/cpu/ops/dense_steps.h"

namespace tcim_lite::cpu {

constexpr int64_t kLeastPixels = 96;  // of a member's share

// Whether y has rows enough for every member: then each computes its share of them, in every layer, so that it mostly
// reads what it wrote itself. Lines of another member's caches may take four times as long.
inline bool has_rows_for(const Window& window, int members) { return window.out_pixels() >= kLeastPixels * members; }

inline BlockWindow::Axis axis_of(const Window::Axis& axis) {
  return {axis.in, axis.kernel, axis.stride, axis.pad, axis.dilation};
}

// Rows of the blocks of all images as tasks, the first rows of all blocks first.
class BlockRows {
 public:
  struct Part {
    int64_t block;           // counted through all images
    int64_t channel, width;  // its first, of an image, and how many it has
    BlockWindow window;
  };
  BlockRows(const Window& window, int64_t images, int64_t channels, int members);

  int64_t count() const { return images_ * blocks_ * parts_; }
  Part part(int64_t index) const;

 private:
  const Window& window_;
  int64_t images_, channels_, blocks_, parts_, rows_;
};

// A block's sums become elements of planes, as TurnedStoreArgs says.
void store_turned(const KernelTable& kernels, Elem elem, TurnedStoreArgs args);

// y [images, channels, pixels] T from x in blocks.
void turn_blocks(const RunContext& context, Elem elem, const float* x, int64_t images, int64_t channels, int64_t pixels,
                 std::byte* y);

}  // namespace tcim_lite::cpu
