// Linear with 4-bit weights, lanes across outputs. vpmaddubsw cannot saturate here: a pair is at most 2 * 15 * 127, and
// eight of them still fit 16 bits, so the widening to 32 bits happens once per 32 inputs.
#include <immintrin.h>

#include "backends/cpu/kernel_table.h"

namespace tcim_lite::cpu {
namespace {

constexpr int64_t kOutputs = 16;
constexpr int64_t kGroup = 64;
constexpr int64_t kGroupBytes = kGroup * 8;  // codes of one group of one block
constexpr int64_t kScaleBytes = 32;          // 16 fp16
static_assert(8 * 2 * 15 * 127 <= 32767);

// Groups lie in pairs: codes of both, then scales of both (graph/weight_format.h).
constexpr int64_t kPairBytes = 2 * (kGroupBytes + kScaleBytes);
constexpr int64_t codes_at(int64_t group) { return group / 2 * kPairBytes + group % 2 * kGroupBytes; }
constexpr int64_t scales_at(int64_t group) {
  return group / 2 * kPairBytes + 2 * kGroupBytes + group % 2 * kScaleBytes;
}

__m256i broadcast4(const int8_t* a) {
  int32_t four;
  __builtin_memcpy(&four, a, sizeof(four));
  return _mm256_set1_epi32(four);
}

__m256i load(const uint8_t* p) { return _mm256_load_si256(reinterpret_cast<const __m256i*>(p)); }

template <int R>
void tile(const LinearQuantArgs& args, int64_t row, int64_t block) {
  const __m256i low_mask = _mm256_set1_epi8(0x0f), ones = _mm256_set1_epi16(1);
  const int64_t inputs = args.groups * kGroup;
  const uint8_t* first = args.weights + block * args.block_stride;
  const int8_t* codes = args.codes + row * inputs;
  __m256 acc[R][2];
  for (int r = 0; r < R; ++r) acc[r][0] = acc[r][1] = _mm256_setzero_ps();
  for (int64_t group = 0; group < args.groups; ++group) {
    const uint8_t* weights = first + codes_at(group);
    __m256i dot[R][2];
    for (int r = 0; r < R; ++r) {
      dot[r][0] = dot[r][1] = _mm256_set1_epi32(-8 * args.sums[(row + r) * args.groups + group]);
    }
    for (int part = 0; part < 2; ++part, weights += kGroupBytes / 2, codes += kGroup / 2) {
      __m256i pairs[R][2];
      for (int r = 0; r < R; ++r) pairs[r][0] = pairs[r][1] = _mm256_setzero_si256();
#pragma GCC unroll 4
      for (int step = 0; step < 4; ++step) {
        for (int half = 0; half < 2; ++half) {
          const __m256i both = load(weights + 64 * step + 32 * half);
          const __m256i low = _mm256_and_si256(both, low_mask);
          const __m256i high = _mm256_and_si256(_mm256_srli_epi16(both, 4), low_mask);
          for (int r = 0; r < R; ++r) {
            const int8_t* a = codes + r * inputs + 8 * step;
            pairs[r][half] = _mm256_add_epi16(pairs[r][half], _mm256_maddubs_epi16(low, broadcast4(a)));
            pairs[r][half] = _mm256_add_epi16(pairs[r][half], _mm256_maddubs_epi16(high, broadcast4(a + 4)));
          }
        }
      }
      for (int r = 0; r < R; ++r) {
        for (int half = 0; half < 2; ++half) {
          dot[r][half] = _mm256_add_epi32(dot[r][half], _mm256_madd_epi16(pairs[r][half], ones));
        }
      }
    }
    for (int half = 0; half < 2; ++half) {
      const uint8_t* at = first + scales_at(group) + 16 * half;
      const __m256 weight_scale = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
      for (int r = 0; r < R; ++r) {
        const __m256 scale = _mm256_mul_ps(weight_scale, _mm256_set1_ps(args.scales[(row + r) * args.groups + group]));
        acc[r][half] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot[r][half]), scale, acc[r][half]);
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    float* out = args.acc + (row + r) * args.acc_stride + block * kOutputs;
    _mm256_store_ps(out, acc[r][0]);
    _mm256_store_ps(out + 8, acc[r][1]);
  }
}

void linear_w4(const LinearQuantArgs& args) {
  for (int64_t block = 0; block < args.blocks; ++block) {
    int64_t row = 0;
    for (; row + 2 <= args.rows; row += 2) tile<2>(args, row, block);
    if (row < args.rows) tile<1>(args, row, block);
  }
}

}  // namespace

void use_linear_w4_avx2(KernelTable& table) { table.linear_w4 = linear_w4; }

}  // namespace tcim_lite::cpu
