// Linear with quantised weights, lanes across outputs, for CPUs without the dot product instructions.
#include <immintrin.h>

#include "backends/cpu/kernels/linear_tile.h"

namespace tcim_lite::cpu {
namespace {

__m256i load(const uint8_t* p) { return _mm256_load_si256(reinterpret_cast<const __m256i*>(p)); }

// An unpacker adds to dot[row][half of the outputs] the products of the stored codes of one group.

// Codes in nibbles. vpmaddubsw cannot saturate with them: a pair is at most 2 * 15 * 128, and eight of them still fit
// 16 bits, so the widening to 32 bits happens once per 32 inputs.
template <typename Format, WeightFormat F>
struct Nibbles : Packed<F> {
  static_assert(8 * 2 * 15 * 128 <= 32767);

  static __m256i broadcast4(const int8_t* a) {
    int32_t four;
    __builtin_memcpy(&four, a, sizeof(four));
    return _mm256_set1_epi32(four);
  }

  template <int R>
  static void add_dots(const uint8_t* weights, const int8_t* codes, int64_t inputs, __m256i (&dot)[R][2]) {
    const __m256i low_mask = _mm256_set1_epi8(0x0f), ones = _mm256_set1_epi16(1);
    for (int part = 0; part < Packed<F>::kInputs / 32; ++part, weights += 256, codes += 32) {
      __m256i pairs[R][2];
      for (int r = 0; r < R; ++r) pairs[r][0] = pairs[r][1] = _mm256_setzero_si256();
#pragma GCC unroll 4
      for (int step = 0; step < 4; ++step) {
        for (int half = 0; half < 2; ++half) {
          const __m256i both = load(weights + 64 * step + 32 * half);
          const __m256i low = Format::decode(_mm256_and_si256(both, low_mask));
          const __m256i high = Format::decode(_mm256_and_si256(_mm256_srli_epi16(both, 4), low_mask));
          for (int r = 0; r < R; ++r) {
            const int8_t* a = codes + r * inputs + 8 * step;
            pairs[r][half] = _mm256_add_epi16(pairs[r][half], Format::products(low, broadcast4(a)));
            pairs[r][half] = _mm256_add_epi16(pairs[r][half], Format::products(high, broadcast4(a + 4)));
          }
        }
      }
      for (int r = 0; r < R; ++r) {
        for (int half = 0; half < 2; ++half) {
          dot[r][half] = _mm256_add_epi32(dot[r][half], _mm256_madd_epi16(pairs[r][half], ones));
        }
      }
    }
  }
};

struct W4 : Nibbles<W4, WeightFormat::LinearW4> {
  static __m256i decode(__m256i nibbles) { return nibbles; }
  static __m256i products(__m256i stored, __m256i a) { return _mm256_maddubs_epi16(stored, a); }
  static __m256 scales(const uint8_t* at, int half) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at + 16 * half)));
  }
};

// 8-bit codes go up to 255, where vpmaddubsw would saturate, so both sides are widened to 16 bits and multiplied with
// vpmaddwd.
struct W8 : Packed<WeightFormat::LinearW8> {
  static __m256i broadcast_words(const int16_t* a) {
    int64_t four;
    __builtin_memcpy(&four, a, sizeof(four));
    return _mm256_set1_epi64x(four);
  }

  template <int R>
  static void add_dots(const uint8_t* weights, const int8_t* codes, int64_t inputs, __m256i (&dot)[R][2]) {
    alignas(32) int16_t wide[R][kInputs];
    for (int r = 0; r < R; ++r) {
      for (int i = 0; i < kInputs; i += 16) {
        const auto* from = reinterpret_cast<const __m128i*>(codes + r * inputs + i);
        _mm256_store_si256(reinterpret_cast<__m256i*>(wide[r] + i), _mm256_cvtepi8_epi16(_mm_load_si128(from)));
      }
    }
    __m256i pairs[R][4];  // of 4 outputs each: the sums of inputs 0, 1 and of inputs 2, 3
    for (int r = 0; r < R; ++r) {
      for (int q = 0; q < 4; ++q) pairs[r][q] = _mm256_setzero_si256();
    }
#pragma GCC unroll 4
    for (int step = 0; step < 16; ++step) {
      for (int q = 0; q < 4; ++q) {
        const __m128i bytes = _mm_load_si128(reinterpret_cast<const __m128i*>(weights + 64 * step + 16 * q));
        const __m256i stored = _mm256_cvtepu8_epi16(bytes);
        for (int r = 0; r < R; ++r) {
          pairs[r][q] = _mm256_add_epi32(pairs[r][q], _mm256_madd_epi16(stored, broadcast_words(wide[r] + 4 * step)));
        }
      }
    }
    for (int r = 0; r < R; ++r) {
      for (int half = 0; half < 2; ++half) {
        const __m256i both = _mm256_hadd_epi32(pairs[r][2 * half], pairs[r][2 * half + 1]);
        dot[r][half] = _mm256_add_epi32(dot[r][half], _mm256_permute4x64_epi64(both, 0xd8));
      }
    }
  }

  // 2^e.
  static __m256 scales(const uint8_t* at, int half) {
    const __m256i wide = _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(at + 8 * half)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(wide, _mm256_set1_epi32(127)), 23));
  }
};

// E2M1, doubled. vpmaddubsw wants an unsigned operand, so the sign goes to the activation.
struct Mxfp4 : Nibbles<Mxfp4, WeightFormat::LinearMxfp4> {
  static __m256i decode(__m256i nibbles) {
    const __m128i codes = _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(codes), nibbles);
  }
  static __m256i products(__m256i codes, __m256i a) {
    return _mm256_maddubs_epi16(_mm256_abs_epi8(codes), _mm256_sign_epi8(a, codes));
  }
  static __m256 scales(const uint8_t* at, int half) { return W8::scales(at, half); }
};

template <typename Format, int R>
void tile(const LinearQuantArgs& args, int64_t row, int64_t block) {
  const Tile t(args, row, block);
  const int64_t groups = args.groups * Format::kParts;
  __m256 acc[R][2];
  for (int r = 0; r < R; ++r) acc[r][0] = acc[r][1] = _mm256_setzero_ps();
  for (int64_t group = 0; group < groups; ++group) {
    __m256i dot[R][2];
    for (int r = 0; r < R; ++r) {
      const int32_t excess = int32_t(Format::kLayout.code_offset) * t.sums[r * t.stride + group / Format::kParts];
      dot[r][0] = dot[r][1] = _mm256_set1_epi32(-excess);
    }
    Format::template add_dots<R>(t.weights + Format::codes_at(group), t.codes + group * Format::kInputs, t.inputs, dot);
    for (int half = 0; half < 2; ++half) {
      const __m256 weight_scale = Format::scales(t.weights + Format::scales_at(groups, group), half);
      for (int r = 0; r < R; ++r) {
        const __m256 row_scale = _mm256_set1_ps(t.scales[r * t.stride + group / Format::kParts]);
        const __m256 scale = _mm256_mul_ps(weight_scale, row_scale);
        acc[r][half] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot[r][half]), scale, acc[r][half]);
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    _mm256_store_ps(t.acc + r * t.acc_stride, acc[r][0]);
    _mm256_store_ps(t.acc + r * t.acc_stride + 8, acc[r][1]);
  }
}

template <typename Format>
void linear(const LinearQuantArgs& args) {
  for (int64_t block = 0; block < args.blocks; ++block) {
    int64_t row = 0;
    for (; row + 2 <= args.rows; row += 2) tile<Format, 2>(args, row, block);
    if (row < args.rows) tile<Format, 1>(args, row, block);
  }
}

}  // namespace

void TCIM_LITE_USE(linear_quant)(KernelTable& table) {
  table.linear[int(W4::kFormat)].quantised = linear<W4>;
  table.linear[int(W8::kFormat)].quantised = linear<W8>;
  table.linear[int(Mxfp4::kFormat)].quantised = linear<Mxfp4>;
}

}  // namespace tcim_lite::cpu
