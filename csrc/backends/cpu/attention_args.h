// What kernels of attention take (kernel_table.h says what all share).
#pragma once

#include <cstdint>

namespace tcim_lite::cpu {

constexpr int64_t kAttentionBlock = 256;  // cache rows per attention block, absolute

// One block of at most 256 keys for several query rows that share a KV head. T is the element of the cache. Row r sees
// keys [begin_of(r), keys[r]), at least one. Writes the block's own m, l and o (docs/numerics.md section 7). Returns
// false when a score or an element of o of row 0 is NaN or infinite: no row sees a cached key that row 0 does not see,
// so a NaN or an infinity in the cache shows there.
struct AttentionBlockArgs {
  const float* q;       // [rows, head_dim], scaled
  const void* k;        // [256 or fewer, head_dim] T, dense
  const void* v;        // [256 or fewer, head_dim] T, dense
  const int32_t* keys;  // [rows], ascending or equal
  float* m;             // [rows]
  float* l;             // [rows]
  float* o;             // [rows, head_dim]
  float* scores;        // [rows, 256], overwritten: of no use to the caller, too large for a stack
  int64_t rows, head_dim;
  const int32_t* begins = nullptr;  // [rows], ascending or equal; null: 0
  const float* mask = nullptr;      // [256 or fewer], added to the scores of every row; null: nothing
  const void* next = nullptr;       // keys that are read after this block, only fetched; null: those behind it
  float softcap = 0;                // above 0, a score s is softcap * tanh(s), before the mask
};
static inline int64_t begin_of(const AttentionBlockArgs& args, int64_t row) {
  return args.begins == nullptr ? 0 : args.begins[row];
}

// Merges a later block (m, l, o) into the running (m, l, o) of an earlier one:
//   m' = max(M, m); a = exp(M - m'); b = exp(m - m'); L = fma(L, a, l * b); O = fma(O, a, o * b).
struct AttentionMergeArgs {
  float* running_m;
  float* running_l;
  float* running_o;  // [rows, head_dim]
  const float* m;
  const float* l;
  const float* o;  // [rows, head_dim]
  int64_t rows, head_dim;
};

// y = round(o / l).
struct AttentionFinishArgs {
  const float* l;  // [rows]
  const float* o;  // [rows, head_dim]
  void* y;         // [rows, head_dim] T
  int64_t rows, head_dim, y_stride;
};

}  // namespace tcim_lite::cpu
