// Linear with quantised weights by vpdpbusd on ymm registers.
#include "backends/cpu/kernels/linear/linear_vnni.h"
#include "backends/cpu/kernels/linear/linear_ymm.h"

namespace tcim_lite::cpu {
namespace {

struct Ymm {
  using Ints = __m256i;
  using Floats = __m256;
  template <WeightFormat F>
  using FormatOf = YmmFormat<F>;

  static constexpr int kOutputs = 8, kRunsTogether = 1;
  static constexpr int kFewRows = 6, kFewColumns = 2;
  static constexpr int kManyRows = 6, kManyColumns = 2;  // sums, 2 codes, a broadcast: 15 of 16 registers
  static constexpr int kLoopedRows = 0;
  static constexpr int64_t kStreamRows = 5;  // more may be two tiles, which share the fetches of a block
  // vpdpbusd takes five cycles, and two start per cycle.
  template <int R>
  static constexpr int kSets = R == 1   ? 4
                               : R == 2 ? 2
                                        : 1;

  // Two rows of 4-bit codes lose by fetches where they are not IntoFirst (benchmarks/notes/log/cpu-avx2-neon.md).
  template <typename Format, int R>
  static constexpr Distance scales_ahead() {
    if (Format::kFetch == WeightFetch::IntoFirst) return kIntoFirst<Format, R>;
    return {(Format::kScalesBehindBlock ? 8 : 4) * Format::kUnitBytes, 0};
  }
  template <typename Format, int R>
  static constexpr Distance codes_ahead() {
    if (Format::kFetch != WeightFetch::IntoFirst && R <= 2 && Format::kNibbles) return {};
    return scales_ahead<Format, R>();
  }

  static Ints all(int32_t value) { return _mm256_set1_epi32(value); }
  static Floats all(float value) { return _mm256_set1_ps(value); }
  static Ints add(Ints a, Ints b) { return _mm256_add_epi32(a, b); }
  static Ints sub(Ints a, Ints b) { return _mm256_sub_epi32(a, b); }
  template <int Bits>
  static Ints shift_left(Ints a) {
    return _mm256_slli_epi32(a, Bits);
  }
  static Ints sixteenth(Ints a) { return _mm256_srai_epi32(a, 4); }
  static Floats sub(Floats a, Floats b) { return _mm256_sub_ps(a, b); }
  static Floats mul(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
  static Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
  static Floats to_floats(Ints a) { return _mm256_cvtepi32_ps(a); }
  static Floats from_bits(Ints a) { return _mm256_castsi256_ps(a); }
  static Ints bits(Floats a) { return _mm256_castps_si256(a); }

  static Ints first(int64_t count) {
    return _mm256_cmpgt_epi32(all(int32_t(count)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static Floats load(const float* p) { return _mm256_load_ps(p); }
  static Floats load(const float* p, int64_t count) { return _mm256_maskload_ps(p, first(count)); }
  static Ints load(const int32_t* p, int64_t count) { return _mm256_maskload_epi32(p, first(count)); }
  static void store(float* p, Floats a) { _mm256_store_ps(p, a); }
  static void store(int32_t* p, Ints a) { _mm256_store_si256(reinterpret_cast<__m256i*>(p), a); }
  // Read from memory: the sums take the registers.
  static void hold(Floats (&scales)[kManyColumns]) { __asm__("" : "+m"(scales)); }

  // The sign of codes stored without an offset goes to the activation.
  template <typename Format>
  static Ints add_products(Ints sum, Ints codes, Ints a) {
    if constexpr (!Format::kE2m1) return _mm256_dpbusd_avx_epi32(sum, codes, a);
    return _mm256_dpbusd_avx_epi32(sum, _mm256_abs_epi8(codes), _mm256_sign_epi8(a, codes));
  }
};

}  // namespace

void TCIM_LITE_USE(linear_quant)(KernelTable& table) {
  enter_quantised(table, [&](auto format) {
    return table.tuning.fetch == WeightFetch::IntoFirst ? linear<Ymm, YmmFormat<format.kValue, WeightFetch::IntoFirst>>
                                                        : linear<Ymm, YmmFormat<format.kValue>>;
  });
}

}  // namespace tcim_lite::cpu
