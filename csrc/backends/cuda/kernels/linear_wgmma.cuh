// What a block of linear_wgmma.cu does with its sums: adds those of the blocks that share its tile, and stores y.
#pragma once

#include <algorithm>

#include "backends/cuda/kernels/linear.cuh"
#include "backends/cuda/kernels/wgmma.cuh"
#include "backends/cuda/kernels/wgmma_operand.cuh"

namespace tcim_lite::cuda {

// x, after its norm if it has one, quantised.
void launch_operand(const LinearArgs& args, void* operand, cudaStream_t stream);

// Outputs and rows of a tile. Each of Groups warpgroups has 64 outputs.
template <int Groups, int Rows>
struct WgmmaTile {
  static constexpr int kGroups = Groups, kRows = Rows, kOutputs = 64 * Groups, kThreads = 128 * Groups;
  static constexpr int kColumns = Rows / 8;           // of 8 rows of x
  static constexpr int kPitch = kOutputs * 2 + 16;    // bytes of a row of results; an odd number of 16s
  static constexpr int kColumnBytes = kThreads * 16;  // of the sums of a column
  // What a block that shares its tile takes of sums. Behind it results, and as many numbers of the residual.
  static constexpr int kSumsBytes = kColumns * kColumnBytes, kResultsBytes = Rows * kPitch;
  static constexpr int kEndBytes = std::max(2 * kResultsBytes, kSumsBytes + kResultsBytes);
  // Of y a tile has a group of 64 columns and, for 192 outputs, half of the one that it shares with the next tile.
  static constexpr int kKept = kOutputs / 2 - 64, kKeptPitch = kKept * 2 + 16, kKeptBytes = Rows * kKeptPitch;
};

#ifdef TCIM_LITE_HOPPER

// What becomes of a block's sums. Of a tile that a cluster's blocks share, each having summed a part of the inputs, a
// block completes and stores the columns of 8 rows from rank * columns() on. Its code is compact: a block comes here
// once, and instructions that it does not have in its caches cost more than those it executes.
template <typename Tile>
class Ending {
 public:
  // `shared` is free in this block.
  __device__ __forceinline__ Ending(const LinearArgs& args, char* shared, int rank, int splits, int64_t first_output,
                                    int first_row, int rows)
      : args_(args),
        shared_(shared),
        rank_(rank),
        splits_(splits),
        shift_(__popc(Tile::kColumns - 1) - __popc(splits - 1)),
        columns_(1 << shift_),
        first_output_(first_output),
        first_row_(first_row + rank * columns_ * 8),
        rows_(min(columns_ * 8, rows - first_row_)) {}

  // Each thread's pieces of the residual into shared memory; store() waits for them.
  __device__ __forceinline__ void fetch_residual() const {
    if (args_.epilogue != kAddResidual) return;
    for_pieces([&](int row, int column, int64_t at, bool whole) {
      if (whole) copy_async(residual_piece(row, column), residual(row) + at);
    });
    commit_copies();
  }

  __device__ __forceinline__ void round(const float (&acc)[Tile::kRows / 2]) const {
    float bias[2];
    load_bias(bias);
#pragma unroll
    for (int j = 0; j < Tile::kColumns; ++j)
      round_column(j, make_float4(acc[4 * j], acc[4 * j + 1], acc[4 * j + 2], acc[4 * j + 3]), bias);
  }

  // Tells the other blocks that `shared` is free in this one. `received` is a barrier for one arrival.
  __device__ __forceinline__ void begin_exchange(uint64_t* received) const {
    if (threadIdx.x == 0) {
      expect_bytes(received, (splits_ - 1) * columns_ * Tile::kColumnBytes);
      arrive(received);
    }
    arrive_in_cluster();
  }

  // Each column to the block that completes it.
  __device__ __forceinline__ void exchange(const float (&acc)[Tile::kRows / 2], uint64_t* received) const {
    wait_for_cluster();
    const uint32_t mine = shared_address(shared_) + uint32_t(rank_ * columns_ * Tile::kColumnBytes) + threadIdx.x * 16;
#pragma unroll
    for (int j = 0; j < Tile::kColumns; ++j) {
      const int owner = j >> shift_;
      const uint32_t place = mine + uint32_t((j & (columns_ - 1)) * Tile::kColumnBytes);
      const float4 sums = make_float4(acc[4 * j], acc[4 * j + 1], acc[4 * j + 2], acc[4 * j + 3]);
      if (owner == rank_) {
        store_shared(place, sums);  // this thread reads it
      } else {
        store_in_cluster(address_in(uint32_t(owner), place), sums,
                         address_in(uint32_t(owner), shared_address(received)));
      }
    }
    wait_barrier(received, 0);
  }

  // Sums of all blocks, in the order of their ranks.
  __device__ __forceinline__ void add_and_round() const {
    float bias[2];
    load_bias(bias);
#pragma unroll 1
    for (int j = 0; j < columns_; ++j) {
      float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 1
      for (int from = 0; from < splits_; ++from) {
        const float4 v =
            *reinterpret_cast<const float4*>(shared_ + (from * columns_ + j) * Tile::kColumnBytes + threadIdx.x * 16);
        sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
      }
      round_column(j, sum, bias);
    }
  }

  // The results to y, once all threads have rounded theirs.
  __device__ __forceinline__ void store() const {
    wait_for_copies<0>();
    for_pieces([&](int row, int column, int64_t at, bool whole) {
      const __half* const from = reinterpret_cast<const __half*>(results() + row * Tile::kPitch);
      float v[8];
      if (args_.epilogue == kSiluMul) {
        load_silu_mul(from, column, v);
      } else {
        load8(from + column, v);
      }
      __half* const y = static_cast<__half*>(args_.y) + (first_row_ + row) * args_.y_stride + at;
      if (!whole) return store_some(v, y, row, at);
      if (args_.epilogue == kAddResidual) {
        float r[8];
        load8(reinterpret_cast<const __half*>(residual_piece(row, column)), r);
#pragma unroll
        for (int i = 0; i < 8; ++i) v[i] += r[i];
      }
      *reinterpret_cast<uint4*>(y) = saturated_halves(v);
    });
  }

  // The same as the operand of the Linear behind, of tile 0 or 1 of two. `kept` has the first tile's half of a group.
  __device__ __forceinline__ void leave_operand(int tile, char* kept, int operand_rows) const {
    static_assert(Tile::kGroups == 3);
    constexpr int kRowsAtOnce = Tile::kThreads / 8;  // eight threads a row
    const int piece = int(threadIdx.x) % 8, groups = args_.outputs / 2 / 64, first_group = int(first_output_ / 128);
    const auto of_tile = [&](int row, int column, float (&v)[8]) {
      load_silu_mul(reinterpret_cast<const __half*>(results() + row * Tile::kPitch), column, v);
      round_halves(v);
    };
#pragma unroll 1
    for (int first = 0; first < Tile::kRows; first += kRowsAtOnce) {
      const int row = first + int(threadIdx.x) / 8;
      if (first + int(threadIdx.x) / 32 * 4 >= rows_) break;  // the same for a warp
      char* const kept_piece = kept + row * Tile::kKeptPitch + piece % 4 * 16;
#pragma unroll 1
      for (int i = 0; i < 2; ++i) {
        const int group = first_group + i, column = (tile == 0 ? 64 * i : 64 * i - 32) + piece * 8;
        float v[8];
        if (tile == 0 && i == 1) {
          if (piece >= 4) break;
          of_tile(row, column, v);
          *reinterpret_cast<uint4*>(kept_piece) = pack_halves(v);
          break;
        }
        if (column < 0) {
          load8(reinterpret_cast<const __half*>(kept_piece), v);
        } else {
          of_tile(row, column, v);
        }
        leave_group(args_.operand, operand_rows, first_row_ + row, group, v, row < rows_ && group < groups);
      }
    }
  }

 private:
  // y's columns `column` .. + 7 of a row of results.
  __device__ __forceinline__ void load_silu_mul(const __half* row, int column, float (&v)[8]) const {
    float up[8];
    const int gate = column / 16 * 32 + column % 16;
    load8(row + gate, v);
    load8(row + gate + 16, up);
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = silu(v[i]) * up[i];
  }

  __device__ __forceinline__ char* results() const { return shared_ + (splits_ == 1 ? 0 : Tile::kSumsBytes); }
  __device__ __forceinline__ char* residual_piece(int row, int column) const {
    return results() + (columns_ * 8 + row) * Tile::kPitch + column * 2;
  }
  __device__ __forceinline__ const __half* residual(int row) const {
    return static_cast<const __half*>(args_.residual) + (first_row_ + row) * args_.residual_stride;
  }

  __device__ __forceinline__ void load_bias(float (&bias)[2]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t output = first_output_ + int(threadIdx.x) / 32 * 16 + int(threadIdx.x) % 32 / 4 + 8 * half;
      bias[half] = args_.bias != nullptr && output < args_.outputs ? args_.bias[output] : 0.0f;
    }
  }

  // Sums of 8 rows, as products leave them, to results [rows][outputs].
  __device__ __forceinline__ void round_column(int j, float4 sum, const float (&bias)[2]) const {
    const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
    const __half2 low = __halves2half2(to_half(sum.x + bias[0]), to_half(sum.y + bias[0])),
                  high = __halves2half2(to_half(sum.z + bias[1]), to_half(sum.w + bias[1]));
    store_matrices_transposed(results() + (8 * j + lane % 8) * Tile::kPitch + warp * 32 + lane / 8 % 2 * 16,
                              *reinterpret_cast<const uint32_t*>(&low), *reinterpret_cast<const uint32_t*>(&high));
  }

  // To f(row, column of the tile's part of y, column of y, whether the piece is whole) for each thread's pieces of 8
  // columns of y.
  template <typename F>
  __device__ __forceinline__ void for_pieces(const F& f) const {
    const bool silu_mul = args_.epilogue == kSiluMul, has_residual = args_.epilogue == kAddResidual;
    constexpr int kPieces = Tile::kOutputs / 8;
    const int pieces = silu_mul ? kPieces / 2 : kPieces, width = silu_mul ? args_.outputs / 2 : args_.outputs;
    const int64_t first = silu_mul ? first_output_ / 2 : first_output_;
    const uintptr_t places =
        reinterpret_cast<uintptr_t>(args_.y) | uintptr_t(args_.y_stride * 2) |
        (has_residual ? reinterpret_cast<uintptr_t>(args_.residual) | uintptr_t(args_.residual_stride * 2) : 0);
#pragma unroll 1
    for (int i = int(threadIdx.x); i < rows_ * pieces; i += Tile::kThreads) {
      const int row = silu_mul ? i / (kPieces / 2) : i / kPieces, column = (i - row * pieces) * 8;
      const int64_t at = first + column;
      if (at < width) f(row, column, at, places % 16 == 0 && at + 8 <= width);
    }
  }

  // Columns `at` .. of a row, up to 8 of them.
  __device__ __forceinline__ void store_some(float (&v)[8], __half* y, int row, int64_t at) const {
    const int width = args_.epilogue == kSiluMul ? args_.outputs / 2 : args_.outputs;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (at + i >= width) break;
      if (args_.epilogue == kAddResidual) v[i] += load(residual(row) + at + i);
      ::tcim_lite::cuda::store(y + i, v[i]);
    }
  }

  const LinearArgs& args_;
  char* const shared_;
  const int rank_, splits_, shift_, columns_;  // 2^shift columns
  const int64_t first_output_;
  const int first_row_, rows_;  // that this block stores
};

#endif

}  // namespace tcim_lite::cuda
