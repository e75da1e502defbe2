// Values in blocks of channels: parts of them, and the way back to planes.
#pragma once

#include "backends/cpu/ops/dense_steps.h"

namespace tcim_lite::cpu {

// Rows of the blocks of all images as tasks.
class BlockRows {
 public:
  struct Part {
    int64_t channel, width;  // of the block's first, counted through all images; how many
    BlockWindow window;
  };
  BlockRows(const Window& window, int64_t images, int64_t channels, int members);

  int64_t count() const { return images_ * blocks_ * parts_; }
  Part part(int64_t index) const;

 private:
  const Window& window_;
  int64_t images_, channels_, blocks_, parts_, rows_;
};

// y [images, channels, pixels] from x in blocks. A member needs turning_bytes() of scratch.
int64_t turning_bytes();
void turn_blocks(const RunContext& context, Elem elem, const std::byte* x, int64_t images, int64_t channels,
                 int64_t pixels, std::byte* y);

}  // namespace tcim_lite::cpu
