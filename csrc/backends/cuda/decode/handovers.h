// How the phases of a program hand over their results: by mail (mail.cuh) or with a barrier over the grid.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backends/cuda/decode/args.h"

namespace tcim_lite::cuda::decode {

// Consecutive fp16 values of a plan's memory. Spaces, such as the arena and an output, share no byte.
struct Range {
  uint32_t space = 0;
  int64_t begin = 0;  // in bytes
  int64_t values = 0;

  int64_t end() const { return begin + 2 * values; }
  bool overlaps(const Range& other) const { return space == other.space && begin < other.end() && other.begin < end(); }
  bool covers(const Range& other) const { return space == other.space && begin <= other.begin && other.end() <= end(); }
  bool operator==(const Range&) const = default;
};

// What a phase reads and makes where a program has a single row.
struct Flow {
  std::vector<Range> reads;  // x; of attention q, k and v
  Range residual;            // no values: none
  Range made;                // no values: memory of the program's own
  bool takes = true;         // can take mail
  bool posts = true;
  bool meets = true;  // false: what it reads was made before the last barrier, or by the block itself
};

// Completes each phase of `args`; those that make outputs come with `keeps`. `flows` are by phase, and only of one row.
void plan_handovers(ProgramArgs& args, std::span<const Flow> flows);

}  // namespace tcim_lite::cuda::decode
