// The rows of a chain's Linear as its tensor cores take them: each warp prepares in shared memory the inputs that it
// multiplies, all rows of them, normalised, and quantised where weights are.
#pragma once

#include "backends/cuda/kernels/chain_weights.cuh"
#include "backends/cuda/kernels/quantize.cuh"

namespace tcim_lite::cuda {

constexpr int kMostChainInputs = 16384;

// Rows: 1, or kMostChainRows for any number from 2 on.
template <WeightFormat Format, int Rows>
class ChainRows {
 public:
  static constexpr int kHalves = Format == WeightFormat::LinearF16 ? 2 : 1;
  // A group of 64 inputs: [half][row] of 64 bytes, then the rows' scales.
  static constexpr int kHalfBytes = Rows * 64, kScales = kHalves * kHalfBytes;
  static constexpr int kGroupBytes = kScales + (Rows == 1 ? 16 : 32);
  static constexpr int kPiece = Rows == 1 ? kMostChainInputs / 64 / kChainWarps : 4;  // groups that are there at a time
  static constexpr int kBytes = kPiece * kGroupBytes;                                 // of a warp

  // `area` is this warp's. Fetches what does not wait: weights of the norm.
  __device__ __forceinline__ ChainRows(const ChainLinear& linear, int rows, char* area)
      : linear_(linear),
        rows_(Rows == 1 ? 1 : rows),
        area_(area),
        begin_(share_begin(linear.inputs / 64, threadIdx.x / 32)),
        end_(share_begin(linear.inputs / 64, threadIdx.x / 32 + 1)) {
    const int count = end_ - begin_;
    spread_ = Rows == 1 || count > 2 ? 2 : count > 1 ? 1 : 0;
    if (norm() && group(0) < count) load_weights(begin_ + group(0));
  }

  __device__ __forceinline__ int begin() const { return begin_; }
  __device__ __forceinline__ int end() const { return end_; }
  __device__ __forceinline__ bool in_pieces() const { return Rows > 1 && end_ - begin_ > kPiece; }

  // Of the first group that is there, then kGroupBytes apart.
  __device__ __forceinline__ const char* groups() const { return area_; }

  // Once x may be read; all warps. Without pieces all groups are there then. scratch: [Rows][kChainWarps].
  __device__ __forceinline__ void start(float* scratch) {
    uint4 kept[kPasses];
    load(begin_, kept);
    if (norm()) {
      float sums[kPasses] = {};
      add_squares(kept, begin_, sums);
      for (int first = begin_ + kPiece; in_pieces() && first < end_; first += kPiece) {
        load(first, kept);
        add_squares(kept, first, sums);
      }
      find_inverse(sums, scratch);
    }
    if (!in_pieces()) store(begin_, kept);
  }

  // Makes groups first .. first + kPiece - 1 be there; first - begin() is a multiple of kPiece.
  __device__ __forceinline__ void take_piece(int first) {
    uint4 kept[kPasses];
    load(first, kept);
    if (norm() && first + group(0) < end_) load_weights(first + group(0));
    __syncwarp();
    store(first, kept);
  }

 private:
  // A lane holds 8 inputs of 64, a pass 4 pairs of row and group. With several rows a lane's group is always the same.
  static constexpr int kPasses = Rows == 1 ? kPiece / 4 : Rows;

  __device__ static int lane() { return int(threadIdx.x) % 32; }
  __device__ static int inside() { return lane() % 8 * 8; }
  __device__ __forceinline__ bool norm() const { return linear_.norm_weight != nullptr; }
  __device__ __forceinline__ int group(int pass) const {
    return Rows == 1 ? 4 * pass + lane() / 8 : lane() / 8 & ((1 << spread_) - 1);
  }
  __device__ __forceinline__ int row(int pass) const {
    return Rows == 1 ? 0 : pass << (2 - spread_) | lane() / 8 >> spread_;
  }
  // The same for the whole warp.
  __device__ __forceinline__ bool is_over(int pass, int first) const {
    return Rows == 1 ? first + 4 * pass >= end_ : pass << (2 - spread_) >= rows_;
  }
  __device__ __forceinline__ bool is_there(int pass, int first) const {
    return first + group(pass) < end_ && row(pass) < rows_;
  }
  __device__ __forceinline__ void load_weights(int group) {
    load8_weights(linear_.norm_weight + group * 64 + inside(), weight_);
  }

  __device__ __forceinline__ void load(int first, uint4 (&kept)[kPasses]) const {
    const auto* from = static_cast<const __half*>(linear_.x) + first * 64 + inside();
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      kept[pass] = make_uint4(0, 0, 0, 0);
      if (is_over(pass, first)) continue;
      if (is_there(pass, first))
        kept[pass] = __ldcg(reinterpret_cast<const uint4*>(from + row(pass) * linear_.x_stride + group(pass) * 64));
    }
  }

  __device__ __forceinline__ void add_squares(const uint4 (&kept)[kPasses], int first, float (&sums)[kPasses]) const {
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      if (is_over(pass, first)) continue;
      float v[8];
      load8(reinterpret_cast<const __half*>(&kept[pass]), v);
      float& sum = sums[Rows == 1 ? 0 : pass];
#pragma unroll
      for (int j = 0; j < 8; ++j) sum = fmaf(v[j], v[j], sum);
    }
  }

  // From a warp's sums to 1 / root of each row's mean square: of row lane % Rows.
  __device__ __forceinline__ void find_inverse(float (&sums)[kPasses], float* scratch) {
    const int warp = threadIdx.x / 32;
#pragma unroll
    for (int pass = 0; pass < (Rows == 1 ? 1 : kPasses); ++pass) {
      if (Rows > 1 && is_over(pass, begin_)) continue;
      float sum = sums[pass];
#pragma unroll
      for (int step = 1; step < 8; step *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
      if (spread_ > 0) sum += __shfl_xor_sync(0xffffffffu, sum, 8);
      if (spread_ > 1) sum += __shfl_xor_sync(0xffffffffu, sum, 16);
      if (lane() % 8 == 0 && row(pass) < rows_ && (Rows == 1 || group(pass) == 0))
        scratch[row(pass) * kChainWarps + warp] = sum;
    }
    __syncthreads();
    const float4 four =
        *reinterpret_cast<const float4*>(scratch + lane() % Rows * kChainWarps + lane() / 8 * (kChainWarps / 4));
    float sum = (four.x + four.y) + (four.z + four.w);
    sum += __shfl_xor_sync(0xffffffffu, sum, 8);
    sum += __shfl_xor_sync(0xffffffffu, sum, 16);
    inverse_ = inverse_root(fmaf(sum, linear_.inverse_inputs, linear_.epsilon));
  }

  __device__ __forceinline__ void store(int first, const uint4 (&kept)[kPasses]) {
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      if (is_over(pass, first)) continue;
      const bool there = is_there(pass, first);
      uint4 raw = kept[pass];
      if (norm()) {
        float v[8];
        load8(reinterpret_cast<const __half*>(&raw), v);
        if (Rows == 1 && pass > 0 && there) load_weights(first + group(pass));
        const float inverse = Rows == 1 ? inverse_ : __shfl_sync(0xffffffffu, inverse_, row(pass));
#pragma unroll
        for (int j = 0; j < 8; ++j) v[j] = v[j] * inverse * weight_[j];
        raw = saturated_halves(v);
      }
      char* to = area_ + group(pass) * kGroupBytes + row(pass) * 64;
      if constexpr (Format == WeightFormat::LinearF16) {
        if (there) *reinterpret_cast<uint4*>(to + inside() / 32 * kHalfBytes + inside() % 32 * 2) = raw;
      } else {
        uint2 codes;
        const float scale = activation_scale<Format>(quantize_halves(raw, codes));
        if (!there) continue;
        *reinterpret_cast<uint2*>(to + inside()) = codes;
        if (inside() == 0)
          *reinterpret_cast<float*>(area_ + group(pass) * kGroupBytes + kScales + row(pass) * 4) = scale;
      }
    }
    __syncwarp();
  }

  const ChainLinear& linear_;
  const int rows_;
  char* const area_;
  const int begin_, end_;
  int spread_;  // log2 of the groups in a pass
  float weight_[8] = {};
  float inverse_ = 1;
};

}  // namespace tcim_lite::cuda
