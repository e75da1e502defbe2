#include <arm_neon.h>

#include "backends/cpu/kernel_table.h"

namespace tcim_lite::cpu {
namespace {

// Four lanes, or the last one to three.
struct Full {};
struct Tail {
  int64_t count;
};

template <typename Body>
inline void for_lanes(int64_t count, Body body) {
  int64_t i = 0;
  for (; i + 4 <= count; i += 4) body(i, Full{});
  if (i < count) body(i, Tail{count - i});
}

float32x4_t load(const float* p, Full) { return vld1q_f32(p); }
float32x4_t load(const uint16_t* p, Full) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
template <typename T>
float32x4_t load(const T* p, Tail tail) {
  T values[4] = {};
  for (int64_t i = 0; i < tail.count; ++i) values[i] = p[i];
  return load(values, Full{});
}
void store(float* p, float32x4_t v, Full) { vst1q_f32(p, v); }
// Saturates at 65504; a NaN passes.
uint16x4_t to_half(float32x4_t v) {
  v = vmaxq_f32(vdupq_n_f32(-65504.0f), vminq_f32(vdupq_n_f32(65504.0f), v));
  return vreinterpret_u16_f16(vcvt_f16_f32(v));
}
void store(uint16_t* p, float32x4_t v, Full) { vst1_u16(p, to_half(v)); }
template <typename T>
void store(T* p, float32x4_t v, Tail tail) {
  T values[4];
  store(values, v, Full{});
  for (int64_t i = 0; i < tail.count; ++i) p[i] = values[i];
}

// exp_ref of activation_ref.cpp on 4 lanes.
float32x4_t exp4(float32x4_t x) {
  const float32x4_t lowest = vdupq_n_f32(-0x1.5d589ep+6f), magic = vdupq_n_f32(0x1.8p+23f);
  const uint32x4_t vanishes = vcltq_f32(x, lowest);
  x = vminq_f32(vdupq_n_f32(88.0f), vmaxq_f32(lowest, x));  // NaN passes
  const float32x4_t shifted = vfmaq_f32(magic, x, vdupq_n_f32(0x1.715476p+0f));
  const float32x4_t n = vsubq_f32(shifted, magic);
  float32x4_t r = vfmaq_f32(x, n, vdupq_n_f32(-0x1.62e430p-1f));
  r = vfmaq_f32(r, n, vdupq_n_f32(0x1.05c610p-29f));
  float32x4_t p = vdupq_n_f32(0x1.6a23cep-10f);
  p = vfmaq_f32(vdupq_n_f32(0x1.123a20p-7f), p, r);
  p = vfmaq_f32(vdupq_n_f32(0x1.5558f2p-5f), p, r);
  p = vfmaq_f32(vdupq_n_f32(0x1.555492p-3f), p, r);
  p = vfmaq_f32(vdupq_n_f32(0x1.fffffcp-2f), p, r);
  p = vfmaq_f32(vdupq_n_f32(1.0f), p, r);
  p = vfmaq_f32(vdupq_n_f32(1.0f), p, r);
  const uint32x4_t power = vaddq_u32(vshlq_n_u32(vreinterpretq_u32_f32(shifted), 23), vdupq_n_u32(0x3f800000));
  const float32x4_t result = vmulq_f32(p, vreinterpretq_f32_u32(power));
  return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(result), vanishes));
}

// sums[i] holds the partial sums 4 i to 4 i + 3: i with i + 8, + 4, + 2, + 1.
float tree_sum(const float32x4_t* sums) {
  const float32x4_t four = vaddq_f32(vaddq_f32(sums[0], sums[2]), vaddq_f32(sums[1], sums[3]));
  const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
  return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}

// Sums of four sets of 16 partial sums, lane n for sums[n], each in the order of tree_sum.
float32x4_t tree_sums(const float32x4_t (&sums)[4][4]) {
  float32x4_t four[4], two[2];
  for (int i = 0; i < 4; ++i) {
    four[i] = vaddq_f32(vaddq_f32(sums[i][0], sums[i][2]), vaddq_f32(sums[i][1], sums[i][3]));
  }
  for (int i = 0; i < 2; ++i) {
    const float64x2_t a = vreinterpretq_f64_f32(four[2 * i]), b = vreinterpretq_f64_f32(four[2 * i + 1]);
    two[i] = vaddq_f32(vreinterpretq_f32_f64(vzip1q_f64(a, b)), vreinterpretq_f32_f64(vzip2q_f64(a, b)));
  }
  return vpaddq_f32(two[0], two[1]);
}

// scores[r][key] = q[r] . k[key] for R rows and 4 / R keys; keys beyond `last` repeat it and are not used. The zeros
// beyond a tail may turn a partial sum of -0 into +0, which no probability and no maximum shows.
template <int R, typename T>
void score_keys(const float* q, const T* k, int64_t key, int64_t last, int64_t dim, float* scores) {
  constexpr int kKeys = 4 / R;
  const T* rows[kKeys];
  for (int j = 0; j < kKeys; ++j) rows[j] = k + (key + j < last ? key + j : last) * dim;
  float32x4_t sums[4][4];
  for (int i = 0; i < 4; ++i) {
    for (int part = 0; part < 4; ++part) sums[i][part] = vdupq_n_f32(0.0f);
  }
  const auto add_products = [&](int64_t d, auto lanes, int64_t part) {
    float32x4_t query[R];
    for (int r = 0; r < R; ++r) query[r] = load(q + r * dim + d, lanes);
#pragma GCC unroll 4
    for (int j = 0; j < kKeys; ++j) {
      const float32x4_t values = load(rows[j] + d, lanes);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        float32x4_t& sum = sums[r * kKeys + j][part];
        sum = vfmaq_f32(sum, query[r], values);
      }
    }
  };
  const int64_t whole = dim / 16 * 16;
  for (int64_t d = 0; d < whole; d += 16) {
#pragma GCC unroll 4
    for (int part = 0; part < 4; ++part) add_products(d + 4 * part, Full{}, part);
  }
  for_lanes(dim - whole, [&](int64_t d, auto lanes) { add_products(whole + d, lanes, d / 4); });
  float own[4];
  vst1q_f32(own, tree_sums(sums));
  for (int r = 0; r < R; ++r) {
    for (int j = 0; j < kKeys; ++j) scores[r * kAttentionBlock + key + j] = own[r * kKeys + j];
  }
}

// Turns the scores of one row into probabilities. exp(-inf - m) is 0, which changes no sum.
void softmax(float* scores, int64_t keys, float* m, float* l) {
  const int64_t padded = (keys + 15) / 16 * 16;
  for (int64_t key = keys; key < padded; ++key) scores[key] = -__builtin_inff();
  float32x4_t high = vdupq_n_f32(-__builtin_inff());
  for (int64_t key = 0; key < padded; key += 4) high = vmaxnmq_f32(high, vld1q_f32(scores + key));
  *m = vmaxnmvq_f32(high) + 0.0f;  // -0 becomes +0: which zero wins is order
  const float32x4_t shift = vdupq_n_f32(*m);
  float32x4_t sums[4];
  for (float32x4_t& sum : sums) sum = vdupq_n_f32(0.0f);
  for (int64_t key = 0; key < padded; key += 16) {
    for (int part = 0; part < 4; ++part) {
      float* at = scores + key + 4 * part;
      const float32x4_t p = exp4(vsubq_f32(vld1q_f32(at), shift));
      vst1q_f32(at, p);
      sums[part] = vaddq_f32(sums[part], p);
    }
  }
  *l = tree_sum(sums);
}

// o[r][d..] = fma(p[r][key], v[key][d..], o) over keys [begin, end), for R rows and 4 * C outputs, the last C partial.
template <int R, int C, typename T, typename Last>
void weigh_values(const float* p, const T* v, int64_t begin, int64_t end, int64_t dim, float* o, Last last) {
  float32x4_t sums[R][C];
  for (int r = 0; r < R; ++r) {
    for (int c = 0; c < C - 1; ++c) sums[r][c] = load(o + r * dim + 4 * c, Full{});
    sums[r][C - 1] = load(o + r * dim + 4 * (C - 1), last);
  }
  for (int64_t key = begin; key < end; ++key) {
    const T* row = v + key * dim;
#pragma GCC unroll 16
    for (int c = 0; c < C; ++c) {
      const float32x4_t values = c < C - 1 ? load(row + 4 * c, Full{}) : load(row + 4 * c, last);
      for (int r = 0; r < R; ++r) sums[r][c] = vfmaq_n_f32(sums[r][c], values, p[r * kAttentionBlock + key]);
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int c = 0; c < C - 1; ++c) store(o + r * dim + 4 * c, sums[r][c], Full{});
    store(o + r * dim + 4 * (C - 1), sums[r][C - 1], last);
  }
}

// Sixteen sums: four units of four cycles need as many.
template <int R, typename T>
void weigh_all_values(const float* p, const T* v, int64_t begin, int64_t end, int64_t dim, float* o) {
  constexpr int kWide = 16 / R;
  int64_t d = 0;
  for (; d + 4 * kWide <= dim; d += 4 * kWide) weigh_values<R, kWide>(p, v + d, begin, end, dim, o + d, Full{});
  for (; d + 4 <= dim; d += 4) weigh_values<R, 1>(p, v + d, begin, end, dim, o + d, Full{});
  if (d < dim) weigh_values<R, 1>(p, v + d, begin, end, dim, o + d, Tail{dim - d});
}

// R rows share every load of K and V. Row r uses the keys up to keys[r], ascending, so the rows have keys[0] in common.
template <int R, typename T>
void attend(const AttentionBlockArgs& args, int64_t row) {
  float scores[R * kAttentionBlock];
  const int64_t dim = args.head_dim;
  const float* q = args.q + row * dim;
  const T* k = static_cast<const T*>(args.k);
  const T* v = static_cast<const T*>(args.v);
  float* o = args.o + row * dim;
  const int32_t* keys = args.keys + row;
  const int64_t most = keys[R - 1];
  for (int64_t key = 0; key < most; key += 4 / R) score_keys<R>(q, k, key, most - 1, dim, scores);
  for (int r = 0; r < R; ++r) softmax(scores + r * kAttentionBlock, keys[r], args.m + row + r, args.l + row + r);
  for (int64_t d = 0; d < R * dim; ++d) o[d] = 0.0f;
  weigh_all_values<R>(scores, v, 0, keys[0], dim, o);
  for (int r = 1; r < R; ++r) {
    if (keys[r] > keys[0]) {
      weigh_all_values<1>(scores + r * kAttentionBlock, v, keys[0], keys[r], dim, o + r * dim);
    }
  }
}

template <typename T>
void attention_block(const AttentionBlockArgs& args) {
  int64_t row = 0;
  for (; row + 4 <= args.rows; row += 4) attend<4, T>(args, row);
  for (; row + 2 <= args.rows; row += 2) attend<2, T>(args, row);
  for (; row < args.rows; ++row) attend<1, T>(args, row);
}

float exp1(float x) { return vgetq_lane_f32(exp4(vdupq_n_f32(x)), 0); }

void attention_merge(const AttentionMergeArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const float m = args.m[row] > args.running_m[row] ? args.m[row] : args.running_m[row];
    const float a = exp1(args.running_m[row] - m);
    const float b = exp1(args.m[row] - m);
    args.running_m[row] = m;
    args.running_l[row] = __builtin_fmaf(args.running_l[row], a, args.l[row] * b);
    float* running_o = args.running_o + row * args.head_dim;
    const float* o = args.o + row * args.head_dim;
    for_lanes(args.head_dim, [&](int64_t d, auto lanes) {
      store(running_o + d, vfmaq_n_f32(vmulq_n_f32(load(o + d, lanes), b), load(running_o + d, lanes), a), lanes);
    });
  }
}

template <typename T>
void attention_finish(const AttentionFinishArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const float* o = args.o + row * args.head_dim;
    T* y = static_cast<T*>(args.y) + row * args.y_stride;
    const float32x4_t l = vdupq_n_f32(args.l[row]);
    for_lanes(args.head_dim, [&](int64_t d, auto lanes) { store(y + d, vdivq_f32(load(o + d, lanes), l), lanes); });
  }
}

}  // namespace

void use_attention_neon(KernelTable& table) {
  table.attention_block[kF16] = attention_block<uint16_t>;
  table.attention_block[kF32] = attention_block<float>;
  table.attention_merge = attention_merge;
  table.attention_finish[kF16] = attention_finish<uint16_t>;
  table.attention_finish[kF32] = attention_finish<float>;
}

}  // namespace tcim_lite::cpu
