// Attention of many query rows over one block of keys, in two passes around the softmax (attention_avx512vnni.cpp).
// Declarations only: kernel files share no inline code.
#pragma once

#include <cstdint>

#include "backends/cpu/kernel_table.h"

namespace tcim_lite::cpu {

constexpr int64_t kMaxTileHeadDim = 256;  // elements; wider heads take the path for few rows

// scores[r * kAttentionBlock + key] = q[r] . k[key] for `rows` rows and keys [0, keys). Up to 31 scores behind the last
// key are written too. T is the cache's element: 0 fp16, 1 fp32.
void score_tile_avx512vnni(Elem elem, const float* q, const void* k, int64_t rows, int64_t keys, int64_t dim,
                           float* scores);

// o[r] = sum over keys of scores[r * kAttentionBlock + key] * v[key], keys ascending, row r over keys [0, keys[r]).
void weigh_tile_avx512vnni(Elem elem, const float* scores, const void* v, const int32_t* keys, int64_t rows,
                           int64_t dim, float* o);

}  // namespace tcim_lite::cpu
