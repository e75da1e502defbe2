// Linear with quantised weights by vpdpbusd on zmm registers.
#include "backends/cpu/kernels/linear/linear_avx512.h"
#include "backends/cpu/kernels/linear/linear_vnni.h"

namespace tcim_lite::cpu {
namespace {

struct Zmm {
  using Ints = __m512i;
  using Floats = __m512;
  template <WeightFormat F>
  using FormatOf = ZmmFormat<F>;

  static constexpr int kOutputs = 16, kRunsTogether = 2;
  static constexpr int kFewRows = 8, kFewColumns = 1;
  static constexpr int kManyRows = 12, kManyColumns = 2;  // sums, 4 codes, 1-2 broadcasts, a mask: 31 of 32 registers
  static constexpr int kLoopedRows = 9;                   // more cost a tenth to a fifth in a loop
  static constexpr int64_t kStreamRows = kFewRows;
  template <int R>
  static constexpr int kSets = 2;  // halve the chain of dependent vpdpbusd

  // PastPage: the hardware stops at the end of a page (WeightFetch). Else one or two rows of W8 fetch nothing: Zen 4
  // loses by any fetch of codes, while on Emerald Rapids it makes 1.1 of the read rate out of 0.76. With more rows the
  // hardware falls behind everywhere (benchmarks/notes/log/cpu-kernels.md).
  template <typename Format, int R>
  static constexpr Distance codes_ahead() {
    if (Format::kFetch == WeightFetch::PastPage || R > 2) return {8 * Format::kUnitBytes, 4 * Format::kUnitBytes};
    return {Format::kScalesBehindBlock ? 0 : 4 * Format::kUnitBytes, 0};
  }
  template <typename Format, int R>
  static constexpr Distance scales_ahead() {
    return codes_ahead<Format, R>();
  }

  static Ints all(int32_t value) { return _mm512_set1_epi32(value); }
  static Floats all(float value) { return _mm512_set1_ps(value); }
  static Ints add(Ints a, Ints b) { return _mm512_add_epi32(a, b); }
  static Ints sub(Ints a, Ints b) { return _mm512_sub_epi32(a, b); }
  template <int Bits>
  static Ints shift_left(Ints a) {
    return _mm512_slli_epi32(a, Bits);
  }
  static Ints sixteenth(Ints a) { return _mm512_srai_epi32(a, 4); }
  static Floats sub(Floats a, Floats b) { return _mm512_sub_ps(a, b); }
  static Floats mul(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
  static Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
  static Floats to_floats(Ints a) { return _mm512_cvtepi32_ps(a); }
  static Floats from_bits(Ints a) { return _mm512_castsi512_ps(a); }
  static Ints bits(Floats a) { return _mm512_castps_si512(a); }

  static __mmask16 first(int64_t count) { return __mmask16(count < kOutputs ? (1u << count) - 1 : ~0u); }
  static Floats load(const float* p) { return _mm512_load_ps(p); }
  static Floats load(const float* p, int64_t count) { return _mm512_maskz_loadu_ps(first(count), p); }
  static Ints load(const int32_t* p, int64_t count) { return _mm512_maskz_loadu_epi32(first(count), p); }
  static void store(float* p, Floats a) { _mm512_store_ps(p, a); }
  static void store(int32_t* p, Ints a) { _mm512_store_si512(p, a); }
  static void hold(Floats (&)[kManyColumns]) {}

  // The sign of codes stored without an offset goes to the activation.
  template <typename Format>
  static Ints add_products(Ints sum, Ints codes, Ints a) {
    if constexpr (!Format::kE2m1) return _mm512_dpbusd_epi32(sum, codes, a);
    const Ints with_sign = _mm512_mask_sub_epi8(a, _mm512_movepi8_mask(codes), _mm512_setzero_si512(), a);
    return _mm512_dpbusd_epi32(sum, _mm512_abs_epi8(codes), with_sign);
  }
};

// Of 4-bit weights on a Zen 5; other CPUs were not measured.
template <typename Format>
void linear_into_first(const LinearQuantArgs& args) {
  args.rows >= 6 && args.rows <= 8 ? linear_of_one_tile<Zmm, Format>(args) : linear<Zmm, Format>(args);
}

}  // namespace

void TCIM_LITE_USE(linear_quant)(KernelTable& table) {
  enter_quantised(table, [&](auto format) {
    if constexpr (format.kValue == WeightFormat::LinearW4) {
      if (table.tuning.fetch == WeightFetch::IntoFirst) return linear_into_first<ZmmFormat<format.kValue>>;
    }
    return table.tuning.fetch == WeightFetch::PastPage ? linear<Zmm, ZmmFormat<format.kValue, WeightFetch::PastPage>>
                                                       : linear<Zmm, ZmmFormat<format.kValue>>;
  });
}

}  // namespace tcim_lite::cpu
