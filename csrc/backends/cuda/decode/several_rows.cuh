// Several rows of a Linear as its tensor cores take them: each warp prepares in shared memory the inputs that
// it multiplies, all rows of them, normalised, and quantised where weights are.
#pragma once

#include "backends/cuda/decode/mail.cuh"
#include "backends/cuda/decode/ring.cuh"
#include "backends/cuda/kernels/quantize.cuh"

namespace tcim_lite::cuda::decode {

// Lane 4 g + t holds 16 inputs of row g of a group of 64, those that it takes to the tensor cores.
template <typename Shape>
class SeveralRows {
  static constexpr bool kHalf = Shape::kHalf;

 public:
  // A group: one part, fp16 two, of [row][64 bytes], then the rows' scales.
  static constexpr int kPartBytes = kMostRows * 64, kScales = (kHalf ? 2 : 1) * kPartBytes;
  static constexpr int kGroupBytes = kScales + 4 * kMostRows;
  static constexpr int kPiece = 4;                     // groups that are there at a time
  static constexpr int kBytes = kPiece * kGroupBytes;  // of a warp
  static constexpr int kNormFloats = kPiece * 64;

  // `area` and `norm`, kNormFloats, are this warp's. Fetches what does not wait: weights of the norm.
  __device__ __forceinline__ SeveralRows(const LinearPhase& linear, const Handover<Shape>& handover, int rows,
                                         char* area, float* norm)
      : linear_(linear),
        rows_(rows),
        squares_(handover.args.squares),
        area_(area),
        norm_(norm),
        begin_(share_begin<Shape>(linear.inputs / 64, threadIdx.x / 32)),
        end_(share_begin<Shape>(linear.inputs / 64, threadIdx.x / 32 + 1)) {
    const int at = 8 * lane();
    if (!has_norm() || begin_ * 64 + at >= end_ * 64) return;
    const auto* from = reinterpret_cast<const float4*>(linear.norm_weight + begin_ * 64 + at);
    reinterpret_cast<float4*>(norm + at)[0] = __ldg(from);
    reinterpret_cast<float4*>(norm + at)[1] = __ldg(from + 1);
  }

  __device__ __forceinline__ int begin() const { return begin_; }
  __device__ __forceinline__ int end() const { return end_; }
  __device__ __forceinline__ bool in_pieces() const { return end_ - begin_ > kPiece; }

  // Of the first group that is there, then kGroupBytes apart.
  __device__ __forceinline__ const char* groups() const { return area_; }

  // Once x may be read; all warps. Without pieces all groups are there then. scratch: [kMostRows][kWarps].
  template <typename Meanwhile>
  __device__ __forceinline__ void start(float* scratch, const Meanwhile& /*meanwhile*/) {
    if (has_codes()) {
      if (!in_pieces()) copy_codes(begin_);
      return;
    }
    const bool summed = has_norm() && linear_.squares > 0;
    if (summed) leave_squares(scratch);
    uint4 kept[kPiece][2];
    load(begin_, kept);
    if (summed) {
      find_inverse(scratch);
    } else if (has_norm()) {
      float squares[2][4] = {};
      add_squares(begin_, kept, squares);
      for (int first = begin_ + kPiece; in_pieces() && first < end_; first += kPiece) {
        load(first, kept);
        add_squares(first, kept, squares);
      }
      leave_squares(squares, scratch);
      find_inverse(scratch);
    }
    if (in_pieces()) return;
#pragma unroll
    for (int pass = 0; pass < kPiece; ++pass) {
      if (begin_ + pass >= end_) break;
      store_pass(pass, begin_, kept[pass]);
    }
    __syncwarp();
  }

  // Prepares groups first .. first + kPiece - 1. The ring of weights hides the latency of its reads.
  __device__ __forceinline__ void take_piece(int first) {
    __syncwarp();
    if (has_codes()) return copy_codes(first);
#pragma unroll 1
    for (int pass = 0; pass < kPiece && first + pass < end_; ++pass) {
      uint4 raw[2];
      load_pass(pass, first, raw);
      store_pass(pass, first, raw);
    }
    __syncwarp();
  }

 private:
  static_assert(kHalf || kGroupBytes == kCodesGroup);
  static_assert(Shape::kWarps == 2 * kMostRows);  // find_inverse()

  __device__ static int lane() { return int(threadIdx.x % 32u); }
  __device__ __forceinline__ bool has_norm() const { return linear_.norm_weight != nullptr; }
  __device__ __forceinline__ bool has_codes() const { return !kHalf && linear_.codes != nullptr; }
  __device__ static int row() { return lane() / 4; }
  // First of 8 inputs of a group, in either half of what the lane holds.
  __device__ static int input(int half) { return kHalf ? 32 * half + lane() % 4 * 8 : lane() % 4 * 16 + 8 * half; }
  __device__ __forceinline__ bool is_there(int pass, int first) const { return first + pass < end_ && row() < rows_; }
  // Of the lane's inputs of the group that begins at `of_group`.
  __device__ static void load_weights(const float* of_group, float (&weight)[2][8]) {
    load8(of_group + input(0), weight[0]);
    load8(of_group + input(1), weight[1]);
  }

  __device__ __forceinline__ void load_pass(int pass, int first, uint4 (&raw)[2]) const {
    const auto* from = static_cast<const __half*>(linear_.x) + row() * linear_.x_stride + (first + pass) * 64;
    const bool there = is_there(pass, first);
    // Of codes both halves have a part of each sector of 32 bytes, which past the L1 would be read twice. The barrier
    // has emptied the L1.
#pragma unroll
    for (int half = 0; half < 2; ++half)
      raw[half] = there ? __ldca(reinterpret_cast<const uint4*>(from + input(half))) : make_uint4(0, 0, 0, 0);
  }
  __device__ __forceinline__ void load(int first, uint4 (&kept)[kPiece][2]) const {
#pragma unroll
    for (int pass = 0; pass < kPiece; ++pass) load_pass(pass, first, kept[pass]);
  }
  __device__ __forceinline__ void copy_codes(int first) {
    uint4 codes[kPiece];
    float scales[kPiece];
#pragma unroll
    for (int pass = 0; pass < kPiece; ++pass) {
      const bool there = first + pass < end_;
      const char* from = linear_.codes + (first + pass) * kGroupBytes;
      codes[pass] = there ? __ldcg(reinterpret_cast<const uint4*>(from) + lane()) : make_uint4(0, 0, 0, 0);
      scales[pass] =
          there && lane() < kMostRows ? __ldcg(reinterpret_cast<const float*>(from + kScales) + lane()) : 0.0f;
    }
#pragma unroll
    for (int pass = 0; pass < kPiece; ++pass) {
      if (first + pass >= end_) break;
      char* to = area_ + pass * kGroupBytes;
      reinterpret_cast<uint4*>(to)[lane()] = codes[pass];
      if (lane() < kMostRows) reinterpret_cast<float*>(to + kScales)[lane()] = scales[pass];
    }
    __syncwarp();
  }

  // The tensor cores multiply rows by rows: the diagonal has what is wanted, in lanes with t = g / 2.
  __device__ __forceinline__ void add_squares(int first, const uint4 (&kept)[kPiece][2], float (&squares)[2][4]) const {
#pragma unroll
    for (int pass = 0; pass < kPiece; ++pass) {
      if (first + pass >= end_) break;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint4& v = kept[pass][half];
        mma_half(squares[half], v.x, 0, v.y, 0, v.x, v.y);
        mma_half(squares[half], v.z, 0, v.w, 0, v.z, v.w);
      }
    }
  }

  // A warp's part of each row.
  __device__ __forceinline__ void leave_squares(const float (&squares)[2][4], float* scratch) const {
    const int g = lane() / 4, t = lane() % 4;
    const float even = squares[0][0] + squares[1][0], odd = squares[0][1] + squares[1][1];
    if (t == g / 2) scratch[row() * Shape::kWarps + threadIdx.x / 32] = g % 2 ? odd : even;
  }
  // The same of what the tiles of the phase before left: two warps a row, of which each leaves eight sums.
  __device__ __forceinline__ void leave_squares(float* scratch) const {
    const int of_row = int(threadIdx.x) / 64, first = int(threadIdx.x) % 64;
    float sum = 0;
    for (int i = first; i < linear_.squares; i += 64) sum += __ldcg(squares_ + of_row * kMostSquares + i);
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    if (first % 4 == 0) scratch[of_row * Shape::kWarps + first / 4] = sum;
  }

  // 1 / root of each row's mean square, once all warps have left their parts.
  __device__ __forceinline__ void find_inverse(const float* scratch) {
    const int t = lane() % 4;
    __syncthreads();
    const float4 four = *reinterpret_cast<const float4*>(scratch + row() * Shape::kWarps + t * 4);
    float sum = (four.x + four.y) + (four.z + four.w);
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    inverse_ = inverse_root(fmaf(sum, linear_.inverse_inputs, linear_.epsilon));
  }

  __device__ __forceinline__ void store_pass(int pass, int first, uint4 (&raw)[2]) {
    const bool there = is_there(pass, first);
    if (has_norm()) normalise(raw, pass, first);
    char* const to = area_ + pass * kGroupBytes;
    char* const mine = to + lane() * 16;
    if constexpr (kHalf) {
      if (!there) return;
      *reinterpret_cast<uint4*>(mine) = raw[0];
      *reinterpret_cast<uint4*>(mine + kPartBytes) = raw[1];
    } else {
      uint4 codes;
      const float scale = activation_scale<Shape::kFormat>(quantize_halves(raw, codes));
      if (!there) return;
      *reinterpret_cast<uint4*>(mine) = codes;
      if (lane() % 4 == 0) reinterpret_cast<float*>(to + kScales)[row()] = scale;
    }
  }

  __device__ __forceinline__ void normalise(uint4 (&raw)[2], int pass, int first) {
    float weight[2][8];
    load_weights(in_pieces() ? linear_.norm_weight + (first + pass) * 64 : norm_ + pass * 64, weight);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float v[8];
      load8(reinterpret_cast<const __half*>(&raw[half]), v);
#pragma unroll
      for (int j = 0; j < 8; ++j) v[j] = v[j] * inverse_ * weight[half][j];
      // To the quantiser an infinity is what 65504 is.
      raw[half] = kHalf ? saturated_halves(v) : pack_halves(v);
    }
  }

  const LinearPhase& linear_;
  const int rows_;
  const float* const squares_;
  char* const area_;
  const float* const norm_;
  const int begin_, end_;
  float inverse_ = 1;
};

}  // namespace tcim_lite::cuda::decode
