// AVX-512 for a CPU that has AVX2: the intrinsics that kernels use, as loops over their lanes. The compiler includes it
// before a kernel (TCIM_LITE_EMULATE_AVX512), which then cannot tell. Slow; a missing intrinsic is a compile error.
// Semantics: Intel's intrinsics guide. Exceptions and rounding modes other than "to nearest even" are left out.
#pragma once

#include <immintrin.h>

#include <cmath>
#include <cstdint>
#include <cstring>

namespace {
namespace emulated {

template <typename T>
struct alignas(64) Lanes {
  static constexpr int kCount = 64 / int(sizeof(T));
  T at[kCount];
};
using Floats = Lanes<float>;
using Register = Lanes<int32_t>;  // __m512i, whose lanes are what an instruction takes them for

template <typename To, typename From>
To same_bits(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}
template <typename T>
Lanes<T> lanes(const Register& a) {
  return same_bits<Lanes<T>>(a);
}
template <typename T>
Register packed(const Lanes<T>& a) {
  return same_bits<Register>(a);
}

// The result whose lane i is make(i).
template <typename T, typename Make>
Lanes<T> each(Make make) {
  Lanes<T> result;
  for (int i = 0; i < Lanes<T>::kCount; ++i) result.at[i] = T(make(i));
  return result;
}
template <typename T, typename Make>
Register each_of(Make make) {
  return packed(each<T>(make));
}
inline bool has(uint64_t mask, int i) { return mask >> i & 1; }

// Memory.
template <typename To>
To load(const void* from) {
  To to;
  std::memcpy(&to, from, sizeof(to));
  return to;
}
template <typename From>
void store(void* to, const From& from) {
  std::memcpy(to, &from, sizeof(from));
}
inline Floats maskz_loadu_ps(uint64_t mask, const float* from) {
  return each<float>([&](int i) { return has(mask, i) ? from[i] : 0.0f; });
}
inline void mask_storeu_ps(float* to, uint64_t mask, const Floats& a) {
  for (int i = 0; i < 16; ++i) {
    if (has(mask, i)) to[i] = a.at[i];
  }
}
struct Halfwords {
  uint16_t at[16];
};
inline __m256i maskz_loadu_epi16(uint64_t mask, const void* from) {
  Halfwords words{};
  for (int i = 0; i < 16; ++i) {
    if (has(mask, i)) std::memcpy(&words.at[i], static_cast<const char*>(from) + 2 * i, 2);
  }
  return same_bits<__m256i>(words);
}
inline void mask_storeu_epi16(void* to, uint64_t mask, __m256i a) {
  const auto words = same_bits<Halfwords>(a);
  for (int i = 0; i < 16; ++i) {
    if (has(mask, i)) std::memcpy(static_cast<char*>(to) + 2 * i, &words.at[i], 2);
  }
}

// Floats.
template <typename Of>
Floats floats(const Floats& a, const Floats& b, Of of) {
  return each<float>([&](int i) { return of(a.at[i], b.at[i]); });
}
inline Floats fmadd(const Floats& a, const Floats& b, const Floats& c) {
  return each<float>([&](int i) { return std::fma(a.at[i], b.at[i], c.at[i]); });
}
inline Floats fnmadd(const Floats& a, const Floats& b, const Floats& c) {
  return each<float>([&](int i) { return std::fma(-a.at[i], b.at[i], c.at[i]); });
}
inline __mmask16 compare(const Floats& a, const Floats& b, int how) {
  uint32_t mask = 0;
  for (int i = 0; i < 16; ++i) {
    const float x = a.at[i], y = b.at[i];
    const bool unordered = x != x || y != y;
    bool holds = false;
    switch (how) {
      case _CMP_LT_OQ:
        holds = x < y;
        break;
      case _CMP_NLT_UQ:
        holds = !(x < y);
        break;
      case _CMP_UNORD_Q:
        holds = unordered;
        break;
      default:
        __builtin_trap();
    }
    mask |= uint32_t(holds) << i;
  }
  return __mmask16(mask);
}
inline Floats select(const Floats& others, uint64_t mask, const Floats& a) {
  return each<float>([&](int i) { return has(mask, i) ? a.at[i] : others.at[i]; });
}
inline __m256 half(const Floats& a, int which) { return _mm256_loadu_ps(a.at + 8 * which); }
inline Floats joined(__m256 low, __m256 high) {
  Floats result;
  _mm256_store_ps(result.at, low);
  _mm256_store_ps(result.at + 8, high);
  return result;
}
inline Floats from_half_precision(__m256i a) {
  return joined(_mm256_cvtph_ps(_mm256_castsi256_si128(a)), _mm256_cvtph_ps(_mm256_extracti128_si256(a, 1)));
}
inline __m256i to_half_precision(const Floats& a) {
  return _mm256_set_m128i(_mm256_cvtps_ph(half(a, 1), 0), _mm256_cvtps_ph(half(a, 0), 0));
}
inline Register nearest(const Floats& a) {
  return packed(same_bits<Lanes<int32_t>>(joined(_mm256_castsi256_ps(_mm256_cvtps_epi32(half(a, 0))),
                                                 _mm256_castsi256_ps(_mm256_cvtps_epi32(half(a, 1))))));
}

// Places. Parts are of four lanes.
inline Floats shuffle(const Floats& a, const Floats& b, int places) {
  return each<float>([&](int i) { return (i % 4 < 2 ? a : b).at[i / 4 * 4 + (places >> 2 * (i % 4) & 3)]; });
}
inline Floats shuffle_parts(const Floats& a, const Floats& b, int places) {
  return each<float>([&](int i) { return (i < 8 ? a : b).at[4 * (places >> 2 * (i / 4) & 3) + i % 4]; });
}
inline Floats unpack(const Floats& a, const Floats& b, int first) {
  return each<float>([&](int i) { return (i % 2 ? b : a).at[i / 4 * 4 + first + i % 4 / 2]; });
}
inline Floats permute(const Floats& a, const Register& places, const Floats& b) {
  return each<float>([&](int i) { return (places.at[i] & 16 ? b : a).at[places.at[i] & 15]; });
}
inline Register align(const Register& high, const Register& low, int count) {
  return each_of<int32_t>([&](int i) { return i + count < 16 ? low.at[i + count] : high.at[i + count - 16]; });
}

// Integers, which wrap around.
template <typename T, typename Of>
Register integers(const Register& x, const Register& y, Of of) {
  const Lanes<T> a = lanes<T>(x), b = lanes<T>(y);
  return each_of<T>([&](int i) { return of(a.at[i], b.at[i]); });
}
template <typename T, typename Of>
Register integers(const Register& x, Of of) {
  const Lanes<T> a = lanes<T>(x);
  return each_of<T>([&](int i) { return of(a.at[i]); });
}
template <typename T>
Register blend(uint64_t mask, const Register& x, const Register& y) {
  const Lanes<T> a = lanes<T>(x), b = lanes<T>(y);
  return each_of<T>([&](int i) { return has(mask, i) ? b.at[i] : a.at[i]; });
}
inline Register mask_sub_epi8(const Register& others, uint64_t mask, const Register& a, const Register& b) {
  return blend<int8_t>(mask, others, integers<uint8_t>(a, b, [](auto x, auto y) { return x - y; }));
}
inline __mmask64 signs(const Register& a) {
  uint64_t mask = 0;
  for (int i = 0; i < 64; ++i) mask |= uint64_t(lanes<int8_t>(a).at[i] < 0) << i;
  return mask;
}
inline Register madd_epi16(const Register& x, const Register& y) {
  const auto a = lanes<int16_t>(x), b = lanes<int16_t>(y);
  return each_of<int32_t>(
      [&](int i) { return uint32_t(a.at[2 * i] * b.at[2 * i]) + uint32_t(a.at[2 * i + 1] * b.at[2 * i + 1]); });
}
inline Register maddubs_epi16(const Register& x, const Register& y) {
  const auto a = lanes<uint8_t>(x);
  const auto b = lanes<int8_t>(y);
  return each_of<int16_t>([&](int i) {
    const int sum = a.at[2 * i] * b.at[2 * i] + a.at[2 * i + 1] * b.at[2 * i + 1];
    return sum > 32767 ? 32767 : sum < -32768 ? -32768 : sum;
  });
}
template <typename T, typename To>
To narrowed(const Register& a) {
  T words[16];
  for (int i = 0; i < 16; ++i) words[i] = T(a.at[i]);
  return same_bits<To>(words);
}

template <typename A, typename Of>
auto folded(const A& a, Of of) {
  auto result = a.at[0];
  for (int i = 1; i < 16; ++i) result = of(result, a.at[i]);
  return result;
}

// As the instructions: the second operand when one is NaN.
constexpr auto kSmaller = [](auto x, auto y) { return x < y ? x : y; };
constexpr auto kLarger = [](auto x, auto y) { return x > y ? x : y; };

}  // namespace emulated
}  // namespace

#define __AVX512F__ 1
#define __AVX512BW__ 1
#define __AVX512DQ__ 1
#define __AVX512VL__ 1
#define __m512 emulated::Floats
#define __m512i emulated::Register

#define _mm512_load_ps emulated::load<__m512>
#define _mm512_loadu_ps emulated::load<__m512>
#define _mm512_load_si512 emulated::load<__m512i>
#define _mm512_loadu_si512 emulated::load<__m512i>
#define _mm512_store_ps emulated::store
#define _mm512_storeu_ps emulated::store
#define _mm512_store_si512 emulated::store
#define _mm512_storeu_si512 emulated::store
#define _mm512_maskz_loadu_ps emulated::maskz_loadu_ps
#define _mm512_mask_storeu_ps emulated::mask_storeu_ps
#define _mm256_maskz_loadu_epi16 emulated::maskz_loadu_epi16
#define _mm256_mask_storeu_epi16 emulated::mask_storeu_epi16

#define _mm512_set1_ps(a) emulated::each<float>([x = float(a)](int) { return x; })
#define _mm512_set1_epi32(a) emulated::each_of<int32_t>([x = int32_t(a)](int) { return x; })
#define _mm512_set1_epi16(a) emulated::each_of<int16_t>([x = int16_t(a)](int) { return x; })
#define _mm512_set1_epi8(a) emulated::each_of<int8_t>([x = int8_t(a)](int) { return x; })
#define _mm512_setr_epi32(...) (__m512i{{__VA_ARGS__}})
#define _mm512_setzero_ps() _mm512_set1_ps(0)
#define _mm512_setzero_si512() _mm512_set1_epi32(0)
#define _mm512_broadcast_i32x4(a) emulated::same_bits<__m512i>(emulated::Lanes<__m128i>{{(a), (a), (a), (a)}})

#define _mm512_add_ps(a, b) emulated::floats(a, b, [](float x, float y) { return x + y; })
#define _mm512_sub_ps(a, b) emulated::floats(a, b, [](float x, float y) { return x - y; })
#define _mm512_mul_ps(a, b) emulated::floats(a, b, [](float x, float y) { return x * y; })
#define _mm512_div_ps(a, b) emulated::floats(a, b, [](float x, float y) { return x / y; })
#define _mm512_min_ps(a, b) emulated::floats(a, b, emulated::kSmaller)
#define _mm512_max_ps(a, b) emulated::floats(a, b, emulated::kLarger)
#define _mm512_sqrt_ps(a) emulated::floats(a, a, [](float x, float) { return std::sqrt(x); })
#define _mm512_abs_ps(a) emulated::floats(a, a, [](float x, float) { return std::fabs(x); })
#define _mm512_roundscale_ps(a, how) emulated::floats(a, a, [](float x, float) { return std::nearbyint(x); })
#define _mm512_xor_ps(a, b) _mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(a), _mm512_castps_si512(b)))
#define _mm512_fmadd_ps emulated::fmadd
#define _mm512_fnmadd_ps emulated::fnmadd
#define _mm512_cmp_ps_mask emulated::compare
#define _mm512_mask_mov_ps emulated::select
#define _mm512_maskz_mov_ps(mask, a) emulated::select(_mm512_setzero_ps(), mask, a)
#define _mm512_reduce_max_ps(a) emulated::folded(a, emulated::kLarger)

#define _mm512_castps_si512(a) emulated::same_bits<__m512i>(a)
#define _mm512_castsi512_ps(a) emulated::same_bits<__m512>(a)
#define _mm512_castps512_ps256(a) emulated::half(a, 0)
#define _mm512_extractf32x8_ps emulated::half
#define _mm512_cvtss_f32(a) ((a).at[0])
#define _mm512_cvtph_ps emulated::from_half_precision
#define _mm512_cvtps_ph(a, how) emulated::to_half_precision(a)
#define _mm512_maskz_cvtps_ph(mask, a, how) emulated::to_half_precision(_mm512_maskz_mov_ps(mask, a))
#define _mm512_cvtps_epi32 emulated::nearest
#define _mm512_cvtepi32_ps(a) emulated::each<float>([&](int i) { return (a).at[i]; })
#define _mm512_cvtepi32_epi16 emulated::narrowed<int16_t, __m256i>
#define _mm512_cvtepi32_epi8 emulated::narrowed<int8_t, __m128i>

#define _mm512_shuffle_ps emulated::shuffle
#define _mm512_shuffle_f32x4 emulated::shuffle_parts
#define _mm512_unpacklo_ps(a, b) emulated::unpack(a, b, 0)
#define _mm512_unpackhi_ps(a, b) emulated::unpack(a, b, 2)
#define _mm512_permutex2var_ps emulated::permute
#define _mm512_alignr_epi32 emulated::align

#define _mm512_add_epi32(a, b) emulated::integers<uint32_t>(a, b, [](auto x, auto y) { return x + y; })
#define _mm512_sub_epi32(a, b) emulated::integers<uint32_t>(a, b, [](auto x, auto y) { return x - y; })
#define _mm512_and_si512(a, b) emulated::integers<uint32_t>(a, b, [](auto x, auto y) { return x & y; })
#define _mm512_xor_si512(a, b) emulated::integers<uint32_t>(a, b, [](auto x, auto y) { return x ^ y; })
#define _mm512_min_epi32(a, b) emulated::integers<int32_t>(a, b, emulated::kSmaller)
#define _mm512_max_epi32(a, b) emulated::integers<int32_t>(a, b, emulated::kLarger)
#define _mm512_slli_epi32(a, n) emulated::integers<uint32_t>(a, [](auto x) { return x << (n); })
#define _mm512_srli_epi32(a, n) emulated::integers<uint32_t>(a, [](auto x) { return x >> (n); })
#define _mm512_slli_epi16(a, n) emulated::integers<uint16_t>(a, [](auto x) { return x << (n); })
#define _mm512_abs_epi8(a) emulated::integers<int8_t>(a, [](auto x) { return x < 0 ? -x : x; })
#define _mm512_mask_blend_epi16 emulated::blend<int16_t>
#define _mm512_mask_blend_epi8 emulated::blend<int8_t>
#define _mm512_mask_sub_epi8 emulated::mask_sub_epi8
#define _mm512_movepi8_mask emulated::signs
#define _mm512_madd_epi16 emulated::madd_epi16
#define _mm512_maddubs_epi16 emulated::maddubs_epi16
#define _mm512_reduce_max_epi32(a) emulated::folded(a, emulated::kLarger)
#define _mm512_reduce_add_epi32(a) emulated::folded(a, [](uint32_t x, uint32_t y) { return int32_t(x + y); })
