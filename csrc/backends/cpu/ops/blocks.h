// Values in blocks of channels: parts of them, and the way back to planes.
#pragma once

#include "backends/cpu/ops/dense_steps.h"

namespace tcim_lite::cpu {

// Rows of the blocks of all images as tasks.
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
