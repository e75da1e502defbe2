// Which tiles a Linear of many rows takes on Hopper (linear_wgmma.cu).
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>

#include "backends/cuda/kernels/kernels.h"

namespace tcim_lite::cuda {

constexpr int kMostSplits = 8;  // of the inputs of a tile; a power of two
// How many clusters of so many blocks run at once; 0: none.
using ClustersAtOnce = std::atomic<int>[kMostSplits + 1];

// 64 groups outputs by `rows`; the blocks of a cluster split the inputs. A pair: a block has two tiles of outputs.
struct WgmmaChoice {
  int groups, rows, splits;
  bool pair = false;
};

// Nanoseconds of a block, measured on an H200: for each group of 64 inputs, and besides.
inline int group_cost(int groups, int rows) {
  if (groups == 3) return rows == 128 ? 435 : 325;
  return rows == 128 ? 310 : 245;
}
inline int fixed_cost(int rows, int splits) {
  if (rows == 128) return splits == 1 ? 4200 : 6300 + 200 * splits;
  return splits == 1 ? 2600 : 3700 + 300 * splits;
}
// What a pair saves, about: the way from one tile to the next, and the launch that makes the next Linear's operand.
constexpr int kPairSaves = 1000, kOperandSaves = 3000;

inline WgmmaChoice choose_tiles(const LinearArgs& args, bool may_pair, const ClustersAtOnce& at_once) {
  const int inner = args.inputs / 64;
  const auto tiles_of = [&](int outputs, int rows) {
    return (args.outputs + outputs - 1) / outputs * ((args.rows + rows - 1) / rows);
  };
  WgmmaChoice best{3, 128, 1};
  int64_t least = INT64_MAX;
  for (const auto& [groups, rows] : {std::pair{3, 128}, {3, 64}, {2, 128}, {2, 64}}) {
    const int tiles = tiles_of(64 * groups, rows);
    for (int splits = 1; splits <= std::min(kMostSplits, inner); splits *= 2) {
      if (at_once[splits] == 0) continue;
      const int waves = (tiles + at_once[splits] - 1) / at_once[splits];
      const int most_groups = (inner + splits - 1) / splits;
      const int64_t cost = waves * int64_t(most_groups * group_cost(groups, rows) + fixed_cost(rows, splits));
      if (cost < least) least = cost, best = {groups, rows, splits};
    }
  }
  if (!may_pair) return best;
  const int64_t waves = (tiles_of(2 * 192, 128) + at_once[1] - 1) / at_once[1];
  const int64_t of_pair = 2 * (inner * group_cost(3, 128) + fixed_cost(128, 1)) - kPairSaves;
  return waves * of_pair - kOperandSaves < least ? WgmmaChoice{3, 128, 1, true} : best;
}

}  // namespace tcim_lite::cuda
