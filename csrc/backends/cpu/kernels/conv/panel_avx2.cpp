// Conv with quantised weights without dot products of bytes: codes of both sides are widened to 16 bits, a few groups
// at a time, and multiplied in pairs. Of 8-bit products, whose pairs would overflow, no more fit a cycle: they need the
// signs moved and another instruction to widen their sums.
#include "backends/cpu/kernels/conv/panel_codes.h"

namespace tcim_lite::cpu {
namespace {

constexpr int64_t kSome = 4;                         // groups at a time: their wide codes fill half of the first cache
constexpr int64_t kWideGroup = 2 * kSteps * kPanel;  // numbers of a group of a panel
constexpr int64_t kWideBlock = 2 * kSteps * kBlockOutputs;
constexpr int kRegister = 8;  // numbers of a register
constexpr int kTileOutputs = 4;

inline __m256i load_ints(const void* at) { return _mm256_loadu_si256(static_cast<const __m256i*>(at)); }
inline void store_ints(int32_t* at, __m256i a) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), a); }

// Four bytes of each lane as two pairs of 16 bits: the first and the third byte, the second and the fourth.
inline void widen(__m256i four, int32_t* even, int32_t* odd) {
  store_ints(even, _mm256_srai_epi16(_mm256_slli_epi16(four, 8), 8));
  store_ints(odd, _mm256_srai_epi16(four, 8));
}

// [step, parity, column] of the first `columns`.
void widen_codes(const int32_t* codes, int64_t columns, int32_t* wide) {
  for (int64_t step = 0; step < kSteps; ++step, codes += kPanel, wide += 2 * kPanel) {
    for (int64_t column = 0; column < columns; column += kRegister)
      widen(load_ints(codes + column), wide + column, wide + kPanel + column);
  }
}

// [step, parity, output]
void widen_weights(const uint8_t* weights, int32_t* wide) {
  const __m256i offset = _mm256_set1_epi8(int8_t(0x80));
  for (int64_t step = 0; step < kSteps; ++step, weights += kLineBytes, wide += 2 * kBlockOutputs) {
    for (int64_t n = 0; n < kBlockOutputs; n += kRegister)
      widen(_mm256_xor_si256(load_ints(weights + 4 * n), offset), wide + n, wide + kBlockOutputs + n);
  }
}

// One group of kTileOutputs outputs and two registers of columns.
inline void tile(const int32_t* weights, const int32_t* codes, const uint8_t* exponents, const float* scales,
                 bool begins, float* acc) {
  __m256i dots[kTileOutputs][2];
#pragma GCC unroll 4
  for (int n = 0; n < kTileOutputs; ++n) dots[n][0] = dots[n][1] = _mm256_setzero_si256();
#pragma GCC unroll 4
  for (int pair = 0; pair < 2 * kSteps; ++pair, weights += kBlockOutputs, codes += kPanel) {
    const __m256i low = load_ints(codes), high = load_ints(codes + kRegister);
#pragma GCC unroll 4
    for (int n = 0; n < kTileOutputs; ++n) {
      const __m256i factor = _mm256_set1_epi32(weights[n]);
      dots[n][0] = _mm256_add_epi32(dots[n][0], _mm256_madd_epi16(factor, low));
      dots[n][1] = _mm256_add_epi32(dots[n][1], _mm256_madd_epi16(factor, high));
    }
  }
#pragma GCC unroll 4
  for (int n = 0; n < kTileOutputs; ++n, acc += kPanel) {
    const __m256 weight_scale = _mm256_set1_ps(scale_of(exponents[n]));
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      float* sum = acc + half * kRegister;
      const __m256 scale = _mm256_mul_ps(weight_scale, _mm256_loadu_ps(scales + half * kRegister));
      const __m256 before = begins ? _mm256_setzero_ps() : _mm256_loadu_ps(sum);
      _mm256_storeu_ps(sum, _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots[n][half]), scale, before));
    }
  }
}

void panel_quant(const PanelQuantArgs& args) {
  alignas(64) int32_t codes[kSome * kWideGroup];
  alignas(64) int32_t weights[kWideBlock];
  const int64_t columns = (args.cols + kLanes - 1) / kLanes * kLanes;
  for (int64_t first = 0; first < args.groups; first += kSome) {
    const int64_t end = first + kSome < args.groups ? first + kSome : args.groups;
    for (int64_t group = first; group < end; ++group)
      widen_codes(args.codes + group * kSteps * kPanel, columns, codes + (group - first) * kWideGroup);
    for (int64_t block = 0; block < args.blocks; ++block) {
      const uint8_t* packed = args.weights + block * args.block_stride;
      for (int64_t group = first; group < end; ++group) {
        widen_weights(packed + W8::codes_at(group), weights);
        for (int64_t output = 0; output < kBlockOutputs; output += kTileOutputs) {
          const uint8_t* exponents = packed + W8::scales_at(args.groups, group) + output;
          float* acc = args.acc + (block * kBlockOutputs + output) * kPanel;
          for (int64_t column = 0; column < columns; column += kLanes)
            tile(weights + output, codes + (group - first) * kWideGroup + column, exponents,
                 args.scales + group * kPanel + column, group == 0, acc + column);
        }
      }
    }
  }
}

}  // namespace

void TCIM_LITE_USE(panel)(KernelTable& table) {
  table.panel_codes = panel_codes;
  table.panel_quant = panel_quant;
}

}  // namespace tcim_lite::cpu
