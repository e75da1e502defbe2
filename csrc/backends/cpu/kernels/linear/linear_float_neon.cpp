#include <arm_neon.h>

#include "backends/cpu/kernels/linear/linear_tile.h"

namespace tcim_lite::cpu {
namespace {

constexpr int kTileRows = 6;  // 6 x 4 sums, 4 weights, an input: 29 of 32 registers

// Two inputs of 16 outputs; the second is padding when K is odd.
struct HalfWeights {
  static void load(const uint8_t* block, int64_t k, float32x4_t (&even)[4], float32x4_t (&odd)[4]) {
    const auto* pairs = reinterpret_cast<const uint16_t*>(block) + k * kBlockOutputs;
    for (int half = 0; half < 2; ++half) {
      const uint16x8x2_t eight = vld2q_u16(pairs + 16 * half);
      const float16x8_t first = vreinterpretq_f16_u16(eight.val[0]), second = vreinterpretq_f16_u16(eight.val[1]);
      even[2 * half] = vcvt_f32_f16(vget_low_f16(first));
      even[2 * half + 1] = vcvt_high_f32_f16(first);
      odd[2 * half] = vcvt_f32_f16(vget_low_f16(second));
      odd[2 * half + 1] = vcvt_high_f32_f16(second);
    }
  }
  static void load_last(const uint8_t* block, int64_t k, float32x4_t (&even)[4]) {
    float32x4_t padding[4];
    load(block, k, even, padding);
  }
};

struct FloatWeights {
  static void load_last(const uint8_t* block, int64_t k, float32x4_t (&even)[4]) {
    for (int i = 0; i < 4; ++i) even[i] = vld1q_f32(reinterpret_cast<const float*>(block) + k * kBlockOutputs + 4 * i);
  }
  static void load(const uint8_t* block, int64_t k, float32x4_t (&even)[4], float32x4_t (&odd)[4]) {
    load_last(block, k, even);
    load_last(block, k + 1, odd);
  }
};

template <int R>
void add_products(float32x4_t (&acc)[R][4], const float32x4_t (&weights)[4], const float* x, int64_t x_stride) {
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
    for (int i = 0; i < 4; ++i) acc[r][i] = vfmaq_n_f32(acc[r][i], weights[i], x[r * x_stride]);
  }
}

template <typename Weights, int R>
void tile(const LinearFloatArgs& args, int64_t row, int64_t block) {
  const uint8_t* weights = args.weights + block * args.block_stride;
  const float* x = args.x + row * args.x_stride;
  float32x4_t acc[R][4], even[4], odd[4];
  for (int r = 0; r < R; ++r) {
    for (int i = 0; i < 4; ++i) acc[r][i] = vdupq_n_f32(0.0f);
  }
  int64_t k = 0;
  for (; k + 2 <= args.cols; k += 2) {
    Weights::load(weights, k, even, odd);
    add_products(acc, even, x + k, args.x_stride);
    add_products(acc, odd, x + k + 1, args.x_stride);
  }
  if (k < args.cols) {
    Weights::load_last(weights, k, even);
    add_products(acc, even, x + k, args.x_stride);
  }
  for (int r = 0; r < R; ++r) {
    float* out = args.acc + (row + r) * args.acc_stride + block * kBlockOutputs;
    for (int i = 0; i < 4; ++i) vst1q_f32(out + 4 * i, acc[r][i]);
  }
}

template <typename W>
constexpr TileKernel<LinearFloatArgs> kTiles[kTileRows + 1] = {nullptr,    tile<W, 1>, tile<W, 2>, tile<W, 3>,
                                                               tile<W, 4>, tile<W, 5>, tile<W, 6>};

template <typename Weights>
void linear(const LinearFloatArgs& args) {
  run_tiles(args, kTileRows, kTiles<Weights>);
}

}  // namespace

void TCIM_LITE_USE(linear_float)(KernelTable& table) {
  table.linear[int(WeightFormat::LinearF16)].floats = linear<HalfWeights>;
  table.linear[int(WeightFormat::LinearF32)].floats = linear<FloatWeights>;
}

}  // namespace tcim_lite::cpu
