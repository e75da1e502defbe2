// Items of quantised weights (repack.cu) on the int8 tensor cores.
#pragma once

#include "backends/cuda/kernels/linear.cuh"
#include "backends/cuda/kernels/mma.cuh"

namespace tcim_lite::cuda {

template <WeightFormat Format>
constexpr int kItemBytes = Format == WeightFormat::LinearW4 ? kItemW4 : kItemW8;

// A lane's codes of an item, 4-bit ones times 16, and the scales of outputs g and g + 8.
template <WeightFormat Format>
__device__ __forceinline__ void load_item(const char* item, int lane, uint32_t (&a)[8], float (&scale)[2]) {
  const int g = lane / 4;
  const uint4 first = *reinterpret_cast<const uint4*>(item + lane * 16);
  if constexpr (Format == WeightFormat::LinearW4) {
    a[0] = low_codes(first.x), a[1] = high_codes(first.x), a[2] = low_codes(first.y), a[3] = high_codes(first.y);
    a[4] = low_codes(first.z), a[5] = high_codes(first.z), a[6] = low_codes(first.w), a[7] = high_codes(first.w);
    const float2 both = __half22float2(*reinterpret_cast<const __half2*>(item + 512 + 4 * g));
    scale[0] = both.x, scale[1] = both.y;
  } else {
    const uint4 second = *reinterpret_cast<const uint4*>(item + 512 + lane * 16);
    a[0] = first.x, a[1] = first.y, a[2] = first.z, a[3] = first.w;
    a[4] = second.x, a[5] = second.y, a[6] = second.z, a[7] = second.w;
    const int both = *reinterpret_cast<const int16_t*>(item + 1024 + 2 * g);
    scale[0] = power_of_two(int8_t(both & 0xff)), scale[1] = power_of_two(both >> 8);
  }
}

// acc += the group's products of an item's 16 outputs and 8 rows: exact sums, then both scales.
__device__ __forceinline__ void add_products(float (&acc)[4], const uint32_t (&a)[8], const uint4& x,
                                             const float (&scale)[2], const float2& x_scale) {
  int dot[4] = {0, 0, 0, 0};
  mma_int8(dot, a[0], a[1], a[2], a[3], x.x, x.y);
  mma_int8(dot, a[4], a[5], a[6], a[7], x.z, x.w);
  acc[0] = fmaf(float(dot[0]), scale[0] * x_scale.x, acc[0]);
  acc[1] = fmaf(float(dot[1]), scale[0] * x_scale.y, acc[1]);
  acc[2] = fmaf(float(dot[2]), scale[1] * x_scale.x, acc[2]);
  acc[3] = fmaf(float(dot[3]), scale[1] * x_scale.y, acc[3]);
}

// A tile of 128 outputs by Rows rows and the ring that its inputs come through, a group of 64 a stage: items, codes of
// the rows, their scales.
template <WeightFormat Format, int Rows>
struct ItemTile {
  static constexpr int kThreads = 256, kStages = 4;
  static constexpr int kBlocks = 8;  // of 16 outputs
  static constexpr int kItem = kItemBytes<Format>;
  static constexpr int kCodesAt = kBlocks * kItem, kScalesAt = kCodesAt + Rows * 64;
  static constexpr int kStageBytes = kScalesAt + Rows * 4, kBytes = kStages * kStageBytes;
};

// Items of blocks `block` .. of weights with so many blocks and groups; beyond the last block, its items again.
template <typename Tile>
__device__ __forceinline__ void fetch_items(char* stage, const char* weights, int64_t block, int blocks, int group,
                                            int groups) {
  constexpr int kChunks = Tile::kItem / 16;
  for (int i = threadIdx.x; i < Tile::kBlocks * kChunks; i += Tile::kThreads) {
    const int64_t from = min(block + i / kChunks, int64_t(blocks - 1));
    copy_async(stage + i * 16, weights + (from * groups + group) * Tile::kItem + i % kChunks * 16);
  }
}

// A warp's sums of a tile: of two blocks from warp % 4 * 2 on, and of every 8 rows from warp / 4 * (Rows / 2) on.
// fetch(stage, group) asks for a group's copies.
template <WeightFormat Format, int Rows, typename Fetch>
__device__ __forceinline__ void multiply_groups(float (&acc)[2][Rows / 16][4], char* shared, int groups,
                                                const Fetch& fetch) {
  using Tile = ItemTile<Format, Rows>;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int warp_block = warp % 4 * 2, warp_row = warp / 4 * (Rows / 2);
  const auto stage_at = [&](int i) { return shared + i % Tile::kStages * Tile::kStageBytes; };
#pragma unroll
  for (int i = 0; i < Tile::kStages - 1; ++i) {
    if (i < groups) fetch(stage_at(i), i);
    commit_copies();
  }
  for (int group = 0; group < groups; ++group) {
    wait_for_copies<Tile::kStages - 2>();
    __syncthreads();
    const int next = group + Tile::kStages - 1;
    if (next < groups) fetch(stage_at(next), next);
    commit_copies();
    const char* stage = stage_at(group);
    uint32_t a[2][8];
    float scale[2][2];
#pragma unroll
    for (int b = 0; b < 2; ++b) load_item<Format>(stage + (warp_block + b) * Tile::kItem, lane, a[b], scale[b]);
    const char* x = stage + Tile::kCodesAt;
    const float* x_scales = reinterpret_cast<const float*>(stage + Tile::kScalesAt);
#pragma unroll
    for (int tile = 0; tile < Rows / 16; ++tile) {
      const uint4 v = *reinterpret_cast<const uint4*>(x + (warp_row + tile * 8 + g) * 64 + 16 * t);
      const float2 s = *reinterpret_cast<const float2*>(x_scales + warp_row + tile * 8 + 2 * t);
#pragma unroll
      for (int b = 0; b < 2; ++b) add_products(acc[b][tile], a[b], v, scale[b], s);
    }
  }
}

}  // namespace tcim_lite::cuda
