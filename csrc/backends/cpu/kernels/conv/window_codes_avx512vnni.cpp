// Panels of codes straight from the planes: columns are gathered by masked loads, 32 at a time, and a group's largest
// magnitude is found meanwhile from the bits of fp16. So what an input becomes passes through the first cache once.
#include "backends/cpu/kernels/conv/panel_codes.h"

namespace tcim_lite::cpu {
namespace {

static_assert(kPanel == 32);  // a register of fp16

// A group of rows as fp16, and the largest of each column without its sign.
struct Gathered {
  alignas(64) uint16_t rows[kGroup * kPanel];
  __m512i largest;
};

// Where the next row comes from.
struct Place {
  const uint16_t* plane;
  int64_t tap;
};

// Of 16 columns, all bits of a word each, a mask of words 0, 2, .. 30.
inline __mmask32 every_second(__m256i columns) { return _mm512_movepi16_mask(_mm512_cvtepu16_epi32(columns)); }

// Runs: how many a tap has; 0: as args.runs_of_tap says.
template <int Runs, int Step>
void gather(const WindowCodesArgs& args, int64_t count, Place& place, Gathered& to) {
  const int64_t runs_of_tap = Runs > 0 ? Runs : args.runs_of_tap;
  __m512i largest = _mm512_setzero_si512();
  const WindowRun* run = args.runs + place.tap * runs_of_tap;
  for (int64_t row = 0; row < count; ++row) {
    __m512i words = _mm512_setzero_si512();
    if constexpr (Step == 1) {
      for (int64_t r = 0; r < runs_of_tap; ++r, ++run)
        words = _mm512_mask_loadu_epi16(words, run->columns, place.plane + run->at);
    } else {
      __m512i high = words;
      for (int64_t r = 0; r < runs_of_tap; ++r, ++run) {
        const uint16_t* from = place.plane + run->at;
        const __m512i columns = _mm512_movm_epi16(run->columns);
        words = _mm512_mask_loadu_epi16(words, every_second(_mm512_castsi512_si256(columns)), from);
        high = _mm512_mask_loadu_epi16(high, every_second(_mm512_extracti64x4_epi64(columns, 1)), from + kPanel);
      }
      words = _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi32_epi16(words)), _mm512_cvtepi32_epi16(high), 1);
    }
    _mm512_store_si512(to.rows + row * kPanel, words);
    largest = _mm512_max_epu16(largest, _mm512_and_si512(words, _mm512_set1_epi16(0x7fff)));
    if (++place.tap == args.taps) {
      // What the next panel reads of this plane begins where the last tap's last run ends.
      prefetch_near(place.plane + run[-1].at + Step * kPanel);
      if constexpr (Step == 2) prefetch_near(place.plane + run[-1].at + (Step + 1) * kPanel);
      place = {place.plane + args.x_stride, 0};
      run = args.runs;
    }
  }
  for (int64_t row = count; row < kGroup; ++row) _mm512_store_si512(to.rows + row * kPanel, _mm512_setzero_si512());
  to.largest = largest;
}

// 16 columns of a group without infinities: with the scale that the largest gives no code is beyond -128 and 128.
void finite_codes(const uint16_t* x, __m256i largest, int32_t* codes, float* scale, int32_t* start) {
  const Ints powers_of_largest = powers(Ints{_mm512_castps_si512(_mm512_cvtph_ps(largest))});
  const Ints power = max(powers_of_largest + broadcast(int32_t{-6 * (1 << 23)}), broadcast(int32_t{(127 - 30) << 23}));
  const Vec inverse = from_bits(broadcast(int32_t{254 << 23}) - power);
  // Of four rows side by side in each quarter, four neighbouring bytes of a column.
  const __m512i by_column = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
  __m512i total = _mm512_setzero_si512();
  for (int64_t row = 0; row < kGroup; row += 4, x += 4 * kPanel, codes += kPanel) {
    __m512i whole[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) whole[i] = nearest(load(x + i * kPanel) * inverse).v;
    const __m512i bytes =
        _mm512_packs_epi16(_mm512_packs_epi32(whole[0], whole[1]), _mm512_packs_epi32(whole[2], whole[3]));
    const __m512i limited = _mm512_max_epi8(bytes, _mm512_set1_epi8(-127));
    const __m512i four = _mm512_shuffle_epi8(limited, by_column);
    total = _mm512_dpbusd_epi32(total, _mm512_set1_epi8(int8_t(0x80)), four);
    store(codes, Ints{four});
  }
  store(scale, from_bits(power));
  store(start, broadcast(0) - Ints{total});
}

template <int Runs, int Step>
void codes_of(const WindowCodesArgs& args) {
  Place place{args.x, 0};
  Gathered gathered;
  for (int64_t group = 0; group * kGroup < args.k; ++group) {
    const int64_t left = args.k - group * kGroup;
    gather<Runs, Step>(args, left < kGroup ? left : kGroup, place, gathered);
    const bool finite = _mm512_cmpge_epu16_mask(gathered.largest, _mm512_set1_epi16(0x7c00)) == 0;
    for (int64_t column = 0; column < args.cols; column += kLanes) {
      const uint16_t* x = gathered.rows + column;
      const int64_t at = group * kPanel + column;
      int32_t* codes = args.codes + group * kSteps * kPanel + column;
      const __m256i largest =
          column == 0 ? _mm512_castsi512_si256(gathered.largest) : _mm512_extracti64x4_epi64(gathered.largest, 1);
      if (finite)
        finite_codes(x, largest, codes, args.scales + at, args.starts + at);
      else
        codes_of_group<true>(x, kPanel, kGroup, Full{}, codes, args.scales + at, args.starts + at);
    }
  }
}

template <int Step>
void codes_of_step(const WindowCodesArgs& args) {
  switch (args.runs_of_tap) {
    case 1:
      return codes_of<1, Step>(args);
    case 2:
      return codes_of<2, Step>(args);
    default:
      return codes_of<0, Step>(args);
  }
}

void window_codes(const WindowCodesArgs& args) { args.step == 1 ? codes_of_step<1>(args) : codes_of_step<2>(args); }

// A window of one tap.
void plane_codes(const PanelCodesArgs& args) {
  const WindowRun run{0, args.cols == kPanel ? ~uint32_t{0} : (uint32_t{1} << args.cols) - 1};
  codes_of<1, 1>({args.x, args.k, args.cols, args.x_stride, &run, 1, 1, 1, args.codes, args.scales, args.starts});
}

}  // namespace

void TCIM_LITE_USE(window_codes)(KernelTable& table) {
  table.panel_codes = plane_codes;
  table.window_codes = window_codes;
  table.gathers_codes = true;
}

}  // namespace tcim_lite::cpu
