#include "runtime/convert.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "base/half.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace tcim_lite {
namespace {

struct Half {
  uint16_t bits;
};
struct Bool {
  uint8_t byte;
};

template <typename T>
constexpr bool kIsFloat = std::is_same_v<T, Half> || std::is_same_v<T, float> || std::is_same_v<T, double>;

template <typename T>
T load(const std::byte* from, int64_t index) {
  T value;
  std::memcpy(&value, from + index * int64_t(sizeof(T)), sizeof(T));
  return value;
}

// To a plain arithmetic type.
inline float plain(Half value) { return half_to_float(value.bits); }
inline uint8_t plain(Bool value) { return value.byte != 0; }
template <typename T>
T plain(T value) {
  return value;
}

// Rounds only once in effect: the intermediate float is rounded to odd, which preserves what the second rounding
// depends on.
uint16_t double_to_half(double value) {
  float narrow = float(value);
  if (double(narrow) != value && !std::isnan(value)) {
    uint32_t bits = std::bit_cast<uint32_t>(narrow);
    if (std::fabs(double(narrow)) > std::fabs(value)) --bits;
    narrow = std::bit_cast<float>(bits | 1u);
  }
  return float_to_half(narrow);
}

template <typename From, typename To>
To convert_one(From source) {
  const auto value = plain(source);
  using Plain = decltype(plain(source));
  if constexpr (std::is_same_v<To, Half>) {
    if constexpr (std::is_same_v<Plain, float>) return Half{float_to_half(value)};
    return Half{double_to_half(double(value))};  // every int up to 2^53 is exact; beyond, the half is infinite anyway
  } else if constexpr (std::is_same_v<To, int8_t> && kIsFloat<From>) {
    const Plain rounded = std::nearbyint(value);
    return int8_t(rounded < -128 ? Plain(-128) : rounded > 127 ? Plain(127) : rounded);
  } else {
    return static_cast<To>(value);
  }
}

template <typename From, typename To>
constexpr bool kAlwaysFits = [] {
  if constexpr (kIsFloat<To>) {
    return true;
  } else if constexpr (kIsFloat<From>) {
    return false;
  } else if constexpr (std::is_same_v<From, Bool>) {
    return true;
  } else if constexpr (sizeof(From) == 1 && sizeof(To) == 1) {
    return true;  // C-5: uint8 <-> int8 reinterprets
  } else {
    return std::cmp_greater_equal(std::numeric_limits<From>::min(), std::numeric_limits<To>::min()) &&
           std::cmp_less_equal(std::numeric_limits<From>::max(), std::numeric_limits<To>::max());
  }
}();

template <typename From, typename To>
bool fits(From source) {
  const auto value = plain(source);
  if constexpr (kAlwaysFits<From, To>) {
    return true;
  } else if constexpr (kIsFloat<From>) {
    if constexpr (std::is_same_v<To, int8_t>) return !std::isnan(value);
    // 2^32 - 1 is no float: compare with the powers of two around the range.
    const double wide = double(value);
    return wide == std::nearbyint(wide) && wide >= double(std::numeric_limits<To>::min()) &&
           wide <= double(std::numeric_limits<To>::max());
  } else {
    return std::in_range<To>(value);
  }
}

template <typename From, typename To>
void convert_run(const std::byte* source, std::byte* target, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const To value = convert_one<From, To>(load<From>(source, i));
    std::memcpy(target + i * int64_t(sizeof(To)), &value, sizeof(To));
  }
}

template <typename From, typename To>
int64_t find_misfit(const std::byte* source, int64_t count) {
  bool good = true;
  for (int64_t i = 0; i < count; ++i) good &= fits<From, To>(load<From>(source, i));
  if (good) return -1;
  for (int64_t i = 0; i < count; ++i) {
    if (!fits<From, To>(load<From>(source, i))) return i;
  }
  return -1;
}

template <DType dtype>
void copy_run(const std::byte* source, std::byte* target, int64_t count) {
  std::memcpy(target, source, size_t(count * size_of(dtype)));
}

#if defined(__x86_64__)
// float32 embeddings into fp16 inputs are the hot case: 20 times the scalar speed.
__attribute__((target("avx,f16c"))) void float_to_half_f16c(const std::byte* source, std::byte* target, int64_t count) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256 values = _mm256_loadu_ps(reinterpret_cast<const float*>(source + i * 4));
    const __m128i halves = _mm256_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(target + i * 2), halves);
  }
  convert_run<float, Half>(source + i * 4, target + i * 2, count - i);
}

__attribute__((target("avx,f16c"))) void half_to_float_f16c(const std::byte* source, std::byte* target, int64_t count) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(source + i * 2));
    _mm256_storeu_ps(reinterpret_cast<float*>(target + i * 4), _mm256_cvtph_ps(halves));
  }
  convert_run<Half, float>(source + i * 2, target + i * 4, count - i);
}

bool has_f16c() {
  // Clang 14 does not know the name "f16c"; that the system saves the registers is in "avx".
  static const bool present = [] {
    unsigned a, b, c, d;
    return __builtin_cpu_supports("avx") && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) != 0;
  }();
  return present;
}
#elif defined(__aarch64__)
void float_to_half_neon(const std::byte* source, std::byte* target, int64_t count) {
  int64_t i = 0;
  for (; i + 4 <= count; i += 4) {
    const float16x4_t halves =
        vcvt_f16_f32(vreinterpretq_f32_u8(vld1q_u8(reinterpret_cast<const uint8_t*>(source + i * 4))));
    vst1_u8(reinterpret_cast<uint8_t*>(target + i * 2), vreinterpret_u8_f16(halves));
  }
  convert_run<float, Half>(source + i * 4, target + i * 2, count - i);
}

void half_to_float_neon(const std::byte* source, std::byte* target, int64_t count) {
  int64_t i = 0;
  for (; i + 4 <= count; i += 4) {
    const uint8x8_t halves = vld1_u8(reinterpret_cast<const uint8_t*>(source + i * 2));
    const float32x4_t values = vcvt_f32_f16(vreinterpret_f16_u8(halves));
    vst1q_u8(reinterpret_cast<uint8_t*>(target + i * 4), vreinterpretq_u8_f32(values));
  }
  convert_run<Half, float>(source + i * 2, target + i * 4, count - i);
}
#endif

// Calls `use` with a value of the C++ type of `dtype`, one of a device's.
template <typename Use>
auto with_device_type(DType dtype, const Use& use) {
  switch (dtype) {
    case DType::Int8:
      return use(int8_t());
    case DType::UInt8:
      return use(uint8_t());
    case DType::Int16:
      return use(int16_t());
    case DType::UInt16:
      return use(uint16_t());
    case DType::Int32:
      return use(int32_t());
    case DType::UInt32:
      return use(uint32_t());
    case DType::Float16:
      return use(Half());
    default:
      return use(float());
  }
}

template <typename Use>
auto with_type(DType dtype, const Use& use) {
  switch (dtype) {
    case DType::Int64:
      return use(int64_t());
    case DType::UInt64:
      return use(uint64_t());
    case DType::Float64:
      return use(double());
    case DType::Bool:
      return use(Bool());
    default:
      return with_device_type(dtype, use);
  }
}

// The loop of a conversion. Among integers a sign changes nothing but what fills the upper bytes of a wider one, so
// types that differ only in their sign share a loop: compilers take a second for all of them, and do not merge them.
template <typename From, typename To>
constexpr auto run_of() {
  if constexpr (std::is_integral_v<To> && !kIsFloat<From>) {
    if constexpr (std::is_integral_v<From> && sizeof(From) >= sizeof(To))
      return convert_run<std::make_unsigned_t<From>, std::make_unsigned_t<To>>;
    else
      return convert_run<From, std::make_unsigned_t<To>>;
  } else {
    return convert_run<From, To>;
  }
}

template <typename From, typename To>
Conversion typed_conversion() {
  return {run_of<From, To>(), kAlwaysFits<From, To> ? nullptr : find_misfit<From, To>};
}

template <typename From>
Conversion conversion_from(DType to) {
  return with_device_type(to, [](auto sample) { return typed_conversion<From, decltype(sample)>(); });
}

}  // namespace

Conversion conversion(DType from, DType to) {
  if (from == to) {
    switch (size_of(to)) {
      case 1:
        return {copy_run<DType::Int8>, nullptr};
      case 2:
        return {copy_run<DType::Int16>, nullptr};
      default:
        return {copy_run<DType::Int32>, nullptr};
    }
  }
#if defined(__x86_64__)
  if (from == DType::Float32 && to == DType::Float16 && has_f16c()) return {float_to_half_f16c, nullptr};
  if (from == DType::Float16 && to == DType::Float32 && has_f16c()) return {half_to_float_f16c, nullptr};
#elif defined(__aarch64__)
  if (from == DType::Float32 && to == DType::Float16) return {float_to_half_neon, nullptr};
  if (from == DType::Float16 && to == DType::Float32) return {half_to_float_neon, nullptr};
#endif
  return with_type(from, [to](auto sample) { return conversion_from<decltype(sample)>(to); });
}

std::string element_text(DType dtype, const std::byte* element) {
  return with_type(dtype, [element](auto sample) { return concat(+plain(load<decltype(sample)>(element, 0))); });
}

bool has_fraction(DType dtype, const std::byte* element) {
  return with_type(dtype, [element](auto sample) {
    const auto value = double(plain(load<decltype(sample)>(element, 0)));
    return std::isfinite(value) && value != std::nearbyint(value);
  });
}

}  // namespace tcim_lite
