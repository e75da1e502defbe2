// Which keys of which row and KV head a block and its warps process. It is the same in every attention of a run.
#pragma once

#include "backends/cuda/decode/kernel.h"

namespace tcim_lite::cuda::decode {

// A row and KV head, of which a block takes one of `splits` parts. The last blocks have the first parts, those with few
// keys, too: they have the fewest tiles of the Linears before and after.
struct AttentionPair {
  bool exists;
  int row, kv_head, slot, token, split;
};
__device__ __forceinline__ AttentionPair pair_of(const ProgramArgs& args) {
  if (args.slots == 0) return {};
  const int place = int(gridDim.x - 1 - blockIdx.x), pairs = args.rows * args.kv_heads;
  const int split = place / pairs, pair = place - split * pairs, row = pair / args.kv_heads;
  const int slot = row / args.slot_rows;
  return {split < args.splits, row, pair - row * args.kv_heads, slot, row - slot * args.slot_rows, split};
}

struct AttentionUnit : AttentionPair {
  bool works, writes;  // the row's key and value
  int valid;           // keys from here on are of this run
  int begin, end;      // keys
  int share, warps;    // keys of a warp, a multiple of 8, the last ones apart; warps that have any
  int active;          // parts with keys

  __device__ __forceinline__ int first_key(int warp) const { return begin + warp * share; }
  __device__ __forceinline__ int end_key(int warp) const { return min(first_key(warp + 1), end); }
};

// Warps: of a block.
template <int Warps>
__device__ __forceinline__ AttentionUnit unit_of(const ProgramArgs& args) {
  constexpr int kAlone = 16 * Warps;  // so many keys are not worth a second block and what merges the two
  // Of several parts. With few warps, more parts take longer to merge than they save.
  constexpr int kFewest = Warps < kMostWarps ? kAlone : 16;
  AttentionUnit unit{pair_of(args)};
  if (!unit.exists) return unit;
  unit.valid = *args.valid[unit.slot];
  const int own = unit.valid + unit.token, keys = min(own + 1, args.context);
  const int chunk = keys <= kAlone ? kAlone : max(kFewest, ((keys + args.splits - 1) / args.splits + 15) / 16 * 16);
  unit.active = (keys + chunk - 1) / chunk;
  unit.begin = unit.split * chunk;
  unit.end = min(unit.begin + chunk, keys);
  unit.works = unit.begin < unit.end;
  if (unit.works) {
    unit.share = ((unit.end - unit.begin + Warps - 1) / Warps + 7) / 8 * 8;
    unit.warps = (unit.end - unit.begin + unit.share - 1) / unit.share;
  }
  unit.writes = unit.works && own >= unit.begin && own < unit.end && unit.token < *args.current[unit.slot];
  return unit;
}

}  // namespace tcim_lite::cuda::decode
