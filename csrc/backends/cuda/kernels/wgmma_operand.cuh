// A quantised Linear's activations as Hopper's products read them (linear_wgmma.cu): [inputs / 64][operand_rows()][64]
// halves, codes times their power of two, swizzled (operand_at). Within a group, four inputs 16 t + 4 i .. + 3 lie at
// 16 i + 2 t, 16 i + 2 t + 8, + 1, + 9: where the items of weights have them (repack.cu).
#pragma once

#include "backends/cuda/kernels/kernels.h"
#include "backends/cuda/kernels/quantize.cuh"

namespace tcim_lite::cuda {

constexpr int kOperandRowBytes = 128;  // of a row of x in a group
constexpr int kMostTileRows = 128;

inline int64_t operand_rows(int64_t rows) { return (rows + kMostTileRows - 1) / kMostTileRows * kMostTileRows; }

// The place of 8 halves; `rows` is operand_rows().
__device__ __forceinline__ uint4* operand_chunk(void* operand, int rows, int row, int group, int chunk) {
  const int64_t of_row = (int64_t(group) * rows + row) * kOperandRowBytes;
  return reinterpret_cast<uint4*>(static_cast<char*>(operand) + of_row + ((chunk ^ row) & 7) * 16);
}

// Lane l of every 8 holds values 8 l .. of a group of a row; all 32 lanes take part, and store it if it is `inside`.
__device__ __forceinline__ void leave_group(void* operand, int rows, int row, int group, float (&v)[8], bool inside) {
  round_to_codes(v);
  // Lane 2 t + u of eight holds words c of chunks 4 u + c; it gives them away for the words of chunk 4 u + t.
  uint32_t word[4];
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    const int from = c / 2 * 4 + c % 2;
    const __half2 both = __floats2half2_rn(v[from], v[from + 2]);
    word[c] = *reinterpret_cast<const uint32_t*>(&both);
  }
  const int t = int(threadIdx.x) % 8 / 2, u = int(threadIdx.x) % 2;
#pragma unroll
  for (int bit = 0; bit < 2; ++bit) {
    const bool high = (t >> bit & 1) != 0;
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      const int low_word = bit == 0 ? 2 * pair : pair, high_word = low_word + (1 << bit);
      const uint32_t got = __shfl_xor_sync(0xffffffffu, high ? word[low_word] : word[high_word], 2 << bit);
      word[low_word] = high ? got : word[low_word];
      word[high_word] = high ? word[high_word] : got;
    }
  }
  if (inside) *operand_chunk(operand, rows, row, group, 4 * u + t) = make_uint4(word[0], word[1], word[2], word[3]);
}

// The same of lane t of every 4, which holds values 8 j + 2 t and + 1 as pair j.
__device__ __forceinline__ void leave_group(void* operand, int rows, int row, int group, float (&v)[8][2],
                                            bool inside) {
  float amax = 0;
#pragma unroll
  for (int j = 0; j < 8; ++j) amax = fmaxf(amax, fmaxf(fabsf(v[j][0]), fabsf(v[j][1])));
  amax = fmaxf(amax, __shfl_xor_sync(0xffffffffu, amax, 1));
  amax = fmaxf(amax, __shfl_xor_sync(0xffffffffu, amax, 2));
  const int exponent = exponent_of(amax), t = int(threadIdx.x) % 4;
  const float inverse = power_of_two(-exponent), scale = power_of_two(exponent);
  // The words of chunk 4 u + t are those of pairs 2 i + u. Two lanes hold the values of two words.
  const bool odd = t % 2 == 1;
  uint32_t word[2][4];
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const float first = (with_code(v[j][0], inverse) - kRounder) * scale;
    const float second = (with_code(v[j][1], inverse) - kRounder) * scale;
    const float got = __shfl_xor_sync(0xffffffffu, odd ? first : second, 1);
    const __half2 both = __floats2half2_rn(odd ? got : first, odd ? second : got);
    word[j % 2][j / 2] = *reinterpret_cast<const uint32_t*>(&both);
  }
  if (!inside) return;
#pragma unroll
  for (int u = 0; u < 2; ++u)
    *operand_chunk(operand, rows, row, group, 4 * u + t) = make_uint4(word[u][0], word[u][1], word[u][2], word[u][3]);
}

}  // namespace tcim_lite::cuda
