// What a tile of AttentionStep reads and writes: queries, one block of the caches, results.
#include <algorithm>

#include "backends/cpu/ops/attention_tile.h"

namespace tcim_lite::cpu {

// Rows are token-major: row = token * heads_per_kv + head.
void AttentionStep::load_queries(const RunContext& run, const Tile& tile, float* queries) const {
  const int64_t heads = heads_per_kv();
  for (int64_t token = 0; token < tile.count; ++token) {
    const int64_t row = tile.slot * q.slot_rows + tile.first + token;
    const std::byte* source = run.at(q.value) + (row * q.stride + tile.kv_head * heads * head_dim) * elem_bytes(elem);
    run.kernels.widen[elem]({source, queries + token * heads * head_dim, heads, head_dim, head_dim, head_dim, scale});
  }
}

// Rows that see nothing of the block are not written.
void AttentionStep::attend_block(const RunContext& run, const Tile& tile, int64_t block, const Scratch& scratch,
                                 const Partial& out) const {
  if (!masks.empty()) return attend_masked(run, tile, block, scratch, out);
  const int64_t heads = heads_per_kv();
  const int64_t rows = tile.begun_rows(block, heads);
  const int64_t start = block * kAttentionBlock;
  int32_t begins[kMaxHeadsPerKv], keys[kMaxHeadsPerKv];  // most_tile_rows() is no more
  const int64_t skip = tile.blind_rows(block, heads);
  for (int64_t row = skip; row < rows; ++row) {
    begins[row] = int32_t(std::max<int64_t>(tile.begin(row / heads) - start, 0));
    keys[row] = int32_t(std::min(tile.end(row / heads) - start, kAttentionBlock));
  }
  attend_rows(run, tile, block, skip, rows, scratch, out,
              {keys + skip, window < context ? begins + skip : nullptr, nullptr});
}

// Tokens see what their own row of the mask does not hide. Neighbours that see a plain range each, as under the usual
// masks, go together as without a mask; to the scores of another token its mask is added.
void AttentionStep::attend_masked(const RunContext& run, const Tile& tile, int64_t block, const Scratch& scratch,
                                  const Partial& out) const {
  const SeenKeys seen = this->seen(run);
  const int64_t heads = heads_per_kv();
  int32_t begins[kMaxHeadsPerKv], keys[kMaxHeadsPerKv];
  float mask[kAttentionBlock];
  const auto span_of = [&](int64_t token) { return seen.in_block(tile.slot, tile.first + token, block); };
  const auto goes_on = [&](int64_t token) {
    if (token == tile.count) return false;
    const SeenKeys::Span before = span_of(token - 1), span = span_of(token);
    return before.plain && span.plain && !span.empty() && span.begin >= before.begin && span.end >= before.end;
  };
  for (int64_t token = 0, next; token < tile.count; token = next) {
    next = token + 1;
    const SeenKeys::Span span = span_of(token);
    if (span.empty()) continue;
    while (goes_on(next)) ++next;
    for (int64_t row = token * heads; row < next * heads; ++row) {
      begins[row] = span_of(row / heads).begin;
      keys[row] = span_of(row / heads).end;
    }
    if (!span.plain) {
      const int64_t column = block * kAttentionBlock + span.begin - first_masked(tile.valid);
      const std::byte* values =
          run.at(masks[tile.slot]) + ((tile.first + token) * mask_step + column) * elem_bytes(elem);
      const int64_t count = span.end - span.begin;
      run.kernels.widen[elem]({values, mask + span.begin, 1, count, count, count, 1.0f});
    }
    const int64_t row = token * heads;
    attend_rows(run, tile, block, row, next * heads, scratch, out,
                {keys + row, begins + row, span.plain ? nullptr : mask});
  }
}

// The keys that a member reads after a block: the next block's, or the first of the next KV head.
const std::byte* AttentionStep::keys_after(const RunContext& run, const Tile& tile, int64_t block) const {
  const int64_t key_bytes = head_dim * elem_bytes(cache_elem);
  if (block + 1 < num_blocks(tile.end(tile.count - 1)))
    return run.at(k[tile.slot]) + (tile.kv_head * context + (block + 1) * kAttentionBlock) * key_bytes;
  const bool same_slot = tile.kv_head + 1 < kv_heads;
  const int64_t slot = same_slot ? tile.slot : tile.slot + 1, kv_head = same_slot ? tile.kv_head + 1 : 0;
  if (slot == int64_t(k.size())) return nullptr;
  const Tile next = tile_of(run, slot, kv_head, tile.first, tile.count);
  const int64_t first = next.begin(0) / kAttentionBlock * kAttentionBlock;
  return run.at(k[slot]) + (kv_head * context + first) * key_bytes;
}

// Rows [row, end) of the tile over the keys of a block.
void AttentionStep::attend_rows(const RunContext& run, const Tile& tile, int64_t block, int64_t row, int64_t end,
                                const Scratch& scratch, const Partial& out, const Seen& what) const {
  const int64_t offset = (tile.kv_head * context + block * kAttentionBlock) * head_dim * elem_bytes(cache_elem);
  const bool finite = run.kernels.attention_block[cache_elem](
      {scratch.queries + row * head_dim, run.at(k[tile.slot]) + offset, run.at(v[tile.slot]) + offset, what.keys,
       out.m + row, out.l + row, out.o + row * head_dim, scratch.scores, end - row, head_dim, what.begins, what.mask,
       keys_after(run, tile, block), softcap});
  if (!finite) run.odd_attention.store(true, std::memory_order_relaxed);
}

void AttentionStep::store(const RunContext& run, const Tile& tile, const Partial& done) const {
  const int64_t heads = heads_per_kv();
  for (int64_t token = 0; token < tile.count; ++token) {
    const int64_t row = tile.slot * y.slot_rows + tile.first + token;
    std::byte* out = run.at(y.value) + (row * y.stride + tile.kv_head * heads * head_dim) * elem_bytes(elem);
    run.kernels.attention_finish[elem](
        {done.l + token * heads, done.o + token * heads * head_dim, out, heads, head_dim, head_dim});
  }
}

}  // namespace tcim_lite::cpu
