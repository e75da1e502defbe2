// What a block of linear_wgmma.cu does with its sums: adds those of the blocks that share its tile, and stores y.
#pragma once

#include "backends/cuda/kernels/linear.cuh"
#include "backends/cuda/kernels/quantize.cuh"
#include "backends/cuda/kernels/wgmma.cuh"

namespace tcim_lite::cuda {

constexpr int kOperandRowBytes = 128;  // of a row of x in a group
constexpr int kMostTileRows = 128;
constexpr int kMostSplits = 8;  // of the inputs of a tile

inline int64_t operand_rows(int64_t rows) { return (rows + kMostTileRows - 1) / kMostTileRows * kMostTileRows; }
// x, after its norm if it has one, quantised, as [inputs / 64][operand_rows()][64] halves.
void launch_operand(const LinearArgs& args, void* operand, cudaStream_t stream);

// Outputs and rows of a tile. Each of Groups warpgroups has 64 outputs.
template <int Groups, int Rows>
struct WgmmaTile {
  static constexpr int kGroups = Groups, kRows = Rows, kOutputs = 64 * Groups, kThreads = 128 * Groups;
  static constexpr int kColumns = Rows / 8;         // of 8 rows of x
  static constexpr int kPitch = kOutputs * 2 + 16;  // bytes of a row of results; an odd number of 16s
  // What a block takes from the others of its cluster, and the results.
  static constexpr int most_received() {
    int most = 0;
    for (int splits = 2; splits <= kMostSplits; ++splits) {
      const int columns = (splits - 1) * ((kColumns + splits - 1) / splits);
      most = columns > most ? columns : most;
    }
    return most * kThreads * 16;
  }
  static constexpr int kEndBytes = most_received() + Rows * kPitch;
};

#ifdef TCIM_LITE_HOPPER

// Columns of a tile whose sums block `rank` of the cluster completes: [begin(rank), begin(rank + 1)).
template <typename Tile>
__device__ __forceinline__ int first_column(int rank, int splits) {
  return rank * Tile::kColumns / splits;
}

// Sums of the cluster's blocks, in the order of their ranks, for the columns that this block completes. Each block has
// summed a part of the inputs. `shared` is free in every block once all have come here.
template <typename Tile>
__device__ __forceinline__ void add_splits(float (&acc)[Tile::kRows / 2], char* shared, int rank, int splits) {
  constexpr int kColumnBytes = Tile::kThreads * 16;
  const int thread = int(threadIdx.x);
  sync_cluster();
#pragma unroll
  for (int owner = 0; owner < kMostSplits; ++owner) {
    if (owner >= splits || owner == rank) continue;
    const int begin = first_column<Tile>(owner, splits), end = first_column<Tile>(owner + 1, splits);
    const int slot = rank - (rank > owner);
    const uint32_t there = address_in(uint32_t(owner), shared_address(shared) + uint32_t(thread * 16) +
                                                           uint32_t(slot * (end - begin) * kColumnBytes));
#pragma unroll
    for (int j = 0; j < Tile::kColumns; ++j) {
      if (j < begin || j >= end) continue;
      store_in_cluster(there + uint32_t((j - begin) * kColumnBytes),
                       make_float4(acc[4 * j], acc[4 * j + 1], acc[4 * j + 2], acc[4 * j + 3]));
    }
  }
  sync_cluster();
  const int begin = first_column<Tile>(rank, splits), end = first_column<Tile>(rank + 1, splits);
#pragma unroll
  for (int j = 0; j < Tile::kColumns; ++j) {
    if (j < begin || j >= end) continue;
    float4 sum = make_float4(0, 0, 0, 0);
    for (int from = 0; from < splits; ++from) {
      float4 v = make_float4(acc[4 * j], acc[4 * j + 1], acc[4 * j + 2], acc[4 * j + 3]);
      if (from != rank) {
        const int slot = from - (from > rank);
        v = *reinterpret_cast<const float4*>(shared + (slot * (end - begin) + j - begin) * kColumnBytes + thread * 16);
      }
      sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
    }
    acc[4 * j] = sum.x, acc[4 * j + 1] = sum.y, acc[4 * j + 2] = sum.z, acc[4 * j + 3] = sum.w;
  }
}

// Columns [begin, end) of the sums with their bias, rounded, to `tile` [rows][outputs].
template <typename Tile>
__device__ __forceinline__ void round_to_tile(const float (&acc)[Tile::kRows / 2], const LinearArgs& args, char* tile,
                                              int64_t first_output, int begin, int end) {
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32, g = lane / 4;
  float bias[2] = {0, 0};
  if (args.bias != nullptr) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t output = first_output + warp * 16 + g + 8 * half;
      if (output < args.outputs) bias[half] = args.bias[output];
    }
  }
  char* const at = tile + (lane % 8) * Tile::kPitch + warp * 32 + lane / 8 % 2 * 16;
#pragma unroll
  for (int j = 0; j < Tile::kColumns; ++j) {
    if (j < begin || j >= end) continue;
    uint32_t rounded_sums[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const __half2 both =
          __halves2half2(to_half(acc[4 * j + 2 * half] + bias[half]), to_half(acc[4 * j + 2 * half + 1] + bias[half]));
      rounded_sums[half] = *reinterpret_cast<const uint32_t*>(&both);
    }
    store_matrices_transposed(at + j * 8 * Tile::kPitch, rounded_sums[0], rounded_sums[1]);
  }
}

// Rows [begin, end) of the tile to y, which has rows up to `rows`.
template <typename Tile>
__device__ __forceinline__ void store_tile(const LinearArgs& args, const char* tile, int64_t first_output,
                                           int first_row, int begin, int end, int rows) {
  const bool silu_mul = args.epilogue == kSiluMul;
  const int pieces = Tile::kOutputs / (silu_mul ? 16 : 8);  // of 8 columns of y
  const int64_t first = silu_mul ? first_output / 2 : first_output,
                columns = silu_mul ? args.outputs / 2 : args.outputs;
  const bool residual = args.epilogue == kAddResidual;
  const uintptr_t places =
      reinterpret_cast<uintptr_t>(args.y) | uintptr_t(args.y_stride * 2) |
      (residual ? reinterpret_cast<uintptr_t>(args.residual) | uintptr_t(args.residual_stride * 2) : 0);
  end = min(end, rows - first_row);
  for (int i = begin * pieces + int(threadIdx.x); i < end * pieces; i += Tile::kThreads) {
    const int row = i / pieces, column = i % pieces * 8;
    const int64_t at = first + column;
    if (at >= columns) continue;
    const bool whole = places % 16 == 0 && at + 8 <= columns;
    const char* const from = tile + row * Tile::kPitch;
    float v[8];
    if (silu_mul) {
      float up[8];
      const int gate = column / 16 * 32 + column % 16;
      load8(reinterpret_cast<const __half*>(from) + gate, v);
      load8(reinterpret_cast<const __half*>(from) + gate + 16, up);
#pragma unroll
      for (int n = 0; n < 8; ++n) v[n] = silu(v[n]) * up[n];
    } else {
      load8(reinterpret_cast<const __half*>(from) + column, v);
    }
    if (residual) {
      const __half* other = static_cast<const __half*>(args.residual) + (first_row + row) * args.residual_stride + at;
      float r[8] = {};
      if (whole) load8(other, r);
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        if (!whole && at + n < columns) r[n] = load(other + n);
        v[n] += r[n];
      }
    }
    __half* const y = static_cast<__half*>(args.y) + (first_row + row) * args.y_stride + at;
    if (whole) {
      *reinterpret_cast<uint4*>(y) = saturated_halves(v);
    } else {
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        if (at + n < columns) store(y + n, v[n]);
      }
    }
  }
}

#endif

}  // namespace tcim_lite::cuda
