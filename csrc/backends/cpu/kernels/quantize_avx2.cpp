#include <immintrin.h>

#include "backends/cpu/kernel_table.h"

namespace tcim_lite::cpu {
namespace {

constexpr int64_t kGroup = 64;

__m256 load(const float* p) { return _mm256_loadu_ps(p); }
__m256 load(const uint16_t* p) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }

template <typename T>
void quantize(const QuantizeArgs& args) {
  const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  for (int64_t row = 0; row < args.rows; ++row) {
    const T* x = static_cast<const T*>(args.x) + row * args.x_stride;
    for (int64_t group = 0; group < args.groups; ++group, x += kGroup) {
      __m256 amax = _mm256_setzero_ps();
      for (int i = 0; i < kGroup; i += 8) amax = _mm256_max_ps(amax, _mm256_and_ps(load(x + i), magnitude));
      __m128 four = _mm_max_ps(_mm256_castps256_ps128(amax), _mm256_extractf128_ps(amax, 1));
      four = _mm_max_ps(four, _mm_movehl_ps(four, four));
      four = _mm_max_ss(four, _mm_movehdup_ps(four));
      int exponent = (_mm_cvtsi128_si32(_mm_castps_si128(four)) >> 23) - 127 - 6;
      exponent = exponent < -30 ? -30 : exponent;
      exponent = exponent > 9 ? 9 : exponent;
      const __m256 inverse = _mm256_castsi256_ps(_mm256_set1_epi32((127 - exponent) << 23));
      int8_t* codes = args.codes + (row * args.groups + group) * kGroup;
      __m256i sum = _mm256_setzero_si256();
      for (int i = 0; i < kGroup; i += 8) {
        __m256 scaled = _mm256_max_ps(_mm256_mul_ps(load(x + i), inverse), _mm256_set1_ps(-127.0f));
        scaled = _mm256_min_ps(scaled, _mm256_set1_ps(127.0f));
        const __m256i code = _mm256_cvtps_epi32(scaled);
        sum = _mm256_add_epi32(sum, code);
        const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(code), _mm256_extracti128_si256(code, 1));
        _mm_storel_epi64(reinterpret_cast<__m128i*>(codes + i), _mm_packs_epi16(words, words));
      }
      __m128i total = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
      total = _mm_add_epi32(total, _mm_shuffle_epi32(total, 0x4e));
      total = _mm_add_epi32(total, _mm_shuffle_epi32(total, 0xb1));
      args.sums[row * args.groups + group] = _mm_cvtsi128_si32(total);
      args.scales[row * args.groups + group] =
          _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128((exponent + 127) << 23)));
    }
  }
}

}  // namespace

void use_quantize_avx2(KernelTable& table) {
  table.quantize[kF16] = quantize<uint16_t>;
  table.quantize[kF32] = quantize<float>;
}

}  // namespace tcim_lite::cpu
