#include <immintrin.h>

#include "backends/cpu/kernel_table.h"

namespace tcim_lite::cpu {
namespace {

constexpr int64_t kGroup = 64;

__m512 load(const float* p) { return _mm512_loadu_ps(p); }
__m512 load(const uint16_t* p) { return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }

template <typename T>
void quantize(const QuantizeArgs& args) {
  const __m512 low = _mm512_set1_ps(-127.0f), high = _mm512_set1_ps(127.0f);
  for (int64_t row = 0; row < args.rows; ++row) {
    const T* x = static_cast<const T*>(args.x) + row * args.x_stride;
    int8_t* codes = args.codes + row * args.groups * kGroup;
    for (int64_t group = 0; group < args.groups; ++group, x += kGroup, codes += kGroup) {
      __m512 values[4];
      for (int i = 0; i < 4; ++i) values[i] = load(x + 16 * i);
      // Magnitudes order like their bits.
      const __m512 pair0 = _mm512_max_ps(_mm512_abs_ps(values[0]), _mm512_abs_ps(values[1]));
      const __m512 pair1 = _mm512_max_ps(_mm512_abs_ps(values[2]), _mm512_abs_ps(values[3]));
      const __m512i bits = _mm512_castps_si512(_mm512_max_ps(pair0, pair1));
      int exponent = int(_mm512_reduce_max_epu32(bits) >> 23) - 127 - 6;
      exponent = exponent < -30 ? -30 : exponent;
      exponent = exponent > 9 ? 9 : exponent;
      const __m512 inverse = _mm512_castsi512_ps(_mm512_set1_epi32((127 - exponent) << 23));
      __m512i sum = _mm512_setzero_si512();
      for (int i = 0; i < 4; ++i) {
        __m512 scaled = _mm512_max_ps(_mm512_mul_ps(values[i], inverse), low);
        scaled = _mm512_min_ps(scaled, high);
        const __m512i code = _mm512_cvtps_epi32(scaled);
        sum = _mm512_add_epi32(sum, code);
        _mm_store_si128(reinterpret_cast<__m128i*>(codes + 16 * i), _mm512_cvtepi32_epi8(code));
      }
      args.scales[row * args.groups + group] =
          _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128((exponent + 127) << 23)));
      args.sums[row * args.groups + group] = _mm512_reduce_add_epi32(sum);
    }
  }
}

}  // namespace

void use_quantize_avx512vnni(KernelTable& table) {
  table.quantize[kF16] = quantize<uint16_t>;
  table.quantize[kF32] = quantize<float>;
}

}  // namespace tcim_lite::cpu
