// Linear with 8-bit weights, lanes across outputs. Codes go up to 255, where vpmaddubsw would saturate, so both sides
// are widened to 16 bits and multiplied with vpmaddwd.
#include <immintrin.h>

#include "backends/cpu/kernel_table.h"

namespace tcim_lite::cpu {
namespace {

constexpr int64_t kOutputs = 16;
constexpr int64_t kGroup = 64;
constexpr int64_t kGroupBytes = kGroup * 16;

__m256i broadcast_words(const int16_t* a) {
  int64_t four;
  __builtin_memcpy(&four, a, sizeof(four));
  return _mm256_set1_epi64x(four);
}

__m256 powers_of_two(const uint8_t* exponents) {
  const __m256i wide = _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(exponents)));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(wide, _mm256_set1_epi32(127)), 23));
}

template <int R>
void tile(const LinearQuantArgs& args, int64_t row, int64_t block) {
  const int64_t inputs = args.groups * kGroup;
  const uint8_t* weights = args.weights + block * args.block_stride;
  const uint8_t* scales = weights + args.groups * kGroupBytes;
  __m256 acc[R][2];
  for (int r = 0; r < R; ++r) acc[r][0] = acc[r][1] = _mm256_setzero_ps();
  for (int64_t group = 0; group < args.groups; ++group, weights += kGroupBytes) {
    alignas(32) int16_t wide[R][kGroup];
    for (int r = 0; r < R; ++r) {
      const int8_t* codes = args.codes + (row + r) * inputs + group * kGroup;
      for (int i = 0; i < kGroup; i += 16) {
        const __m256i words = _mm256_cvtepi8_epi16(_mm_load_si128(reinterpret_cast<const __m128i*>(codes + i)));
        _mm256_store_si256(reinterpret_cast<__m256i*>(wide[r] + i), words);
      }
    }
    __m256i pairs[R][4];  // of 4 outputs each: the sums of inputs 0, 1 and of inputs 2, 3
    for (int r = 0; r < R; ++r) {
      for (int q = 0; q < 4; ++q) pairs[r][q] = _mm256_setzero_si256();
    }
    for (int step = 0; step < 16; ++step) {
      for (int q = 0; q < 4; ++q) {
        const __m128i bytes = _mm_load_si128(reinterpret_cast<const __m128i*>(weights + 64 * step + 16 * q));
        const __m256i stored = _mm256_cvtepu8_epi16(bytes);
        for (int r = 0; r < R; ++r) {
          pairs[r][q] = _mm256_add_epi32(pairs[r][q], _mm256_madd_epi16(stored, broadcast_words(wide[r] + 4 * step)));
        }
      }
    }
    for (int half = 0; half < 2; ++half) {
      const __m256 weight_scale = powers_of_two(scales + group * 16 + 8 * half);
      for (int r = 0; r < R; ++r) {
        const __m256i start = _mm256_set1_epi32(-128 * args.sums[(row + r) * args.groups + group]);
        const __m256i both = _mm256_hadd_epi32(pairs[r][2 * half], pairs[r][2 * half + 1]);
        const __m256i dot = _mm256_add_epi32(_mm256_permute4x64_epi64(both, 0xd8), start);
        const __m256 scale = _mm256_mul_ps(weight_scale, _mm256_set1_ps(args.scales[(row + r) * args.groups + group]));
        acc[r][half] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), scale, acc[r][half]);
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    float* out = args.acc + (row + r) * args.acc_stride + block * kOutputs;
    _mm256_store_ps(out, acc[r][0]);
    _mm256_store_ps(out + 8, acc[r][1]);
  }
}

void linear_w8(const LinearQuantArgs& args) {
  for (int64_t block = 0; block < args.blocks; ++block) {
    int64_t row = 0;
    for (; row + 2 <= args.rows; row += 2) tile<2>(args, row, block);
    if (row < args.rows) tile<1>(args, row, block);
  }
}

}  // namespace

void use_linear_w8_avx2(KernelTable& table) { table.linear_w8 = linear_w8; }

}  // namespace tcim_lite::cpu
