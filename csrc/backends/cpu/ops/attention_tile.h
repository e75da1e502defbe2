// What AttentionStep cuts its work into, and what a member of the pool computes a tile with.
#pragma once

#include <algorithm>

#include "backends/cpu/ops/attention.h"

namespace tcim_lite::cpu {

inline int64_t num_blocks(int64_t keys) { return (keys + kAttentionBlock - 1) / kAttentionBlock; }

// Tokens [first, first + count) of one slot and one KV head.
struct AttentionStep::Tile {
  int64_t slot, kv_head, first, count, valid;
  int64_t context, window;

  int64_t rows(int64_t heads) const { return count * heads; }
  // Keys [begin, end) are those that a token sees.
  int64_t end(int64_t token) const { return std::min(valid + first + token + 1, context); }
  int64_t begin(int64_t token) const { return std::max<int64_t>(end(token) - window, 0); }
  // Leading rows whose last key lies before the block.
  int64_t blind_rows(int64_t block, int64_t heads) const {
    return std::clamp<int64_t>(block * kAttentionBlock - valid - first, 0, count) * heads;
  }
  // Leading rows whose first key lies before the end of the block.
  int64_t begun_rows(int64_t block, int64_t heads) const {
    const int64_t last = (block + 1) * kAttentionBlock + window;  // the end of a token whose first key is too far
    return (last > context ? count : std::clamp<int64_t>(last - 1 - valid - first, 0, count)) * heads;
  }
};

// (m, l, o) of the rows of a tile, one after the other in partial_floats() floats.
struct AttentionStep::Partial {
  float* m;
  float* l;
  float* o;

  Partial(float* floats, int64_t rows) : m(floats), l(floats + rows), o(floats + 2 * rows) {}
};

// Memory of a member for tiles of up to `rows` rows.
struct AttentionStep::Scratch {
  float* scores;    // [rows, 256], first: it begins at a cache line
  float* queries;   // [rows, head_dim]
  float* partials;  // two of partial_floats()

  Scratch(std::byte* memory, int64_t rows, int64_t head_dim)
      : scores(reinterpret_cast<float*>(memory)),
        queries(scores + rows * kAttentionBlock),
        partials(queries + rows * head_dim) {}
  static int64_t bytes(int64_t rows, int64_t head_dim, int64_t partial_floats) {
    return (rows * (kAttentionBlock + head_dim) + 2 * partial_floats) * int64_t(sizeof(float));
  }
};

}  // namespace tcim_lite::cpu
