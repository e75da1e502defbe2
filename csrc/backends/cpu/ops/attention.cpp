#include "backends/cpu/ops/attention.h"

#include <algorithm>
#include <atomic>

namespace tcim_lite::cpu {
namespace {

constexpr int64_t kTileRows = 32;  // query rows (tokens x heads of a KV head) that share one pass over K and V

}  // namespace

// Tokens [first, first + count) of one slot and one KV head.
struct AttentionStep::Tile {
  int64_t slot, kv_head, first, count, valid;

  int64_t rows(int64_t heads) const { return count * heads; }
  // Leading rows whose last key lies before the block.
  int64_t blind_rows(int64_t block, int64_t heads) const {
    return std::clamp<int64_t>(block * kAttentionBlock - valid - first, 0, count) * heads;
  }
  // Keys the last token sees.
  int64_t keys(int64_t context) const { return std::min(valid + first + count, context); }
};

int64_t AttentionStep::tokens_per_tile() const {
  return std::clamp<int64_t>(kTileRows / heads_per_kv(), 1, q.slot_rows);
}

// m, l and o of one tile.
int64_t AttentionStep::partial_floats() const { return tokens_per_tile() * heads_per_kv() * (head_dim + 2); }

int64_t AttentionStep::member_bytes() const {
  // Queries, the running and one block's (m, l, o), and the key counts.
  const int64_t rows = tokens_per_tile() * heads_per_kv();
  return (rows * head_dim + 2 * partial_floats() + rows) * 4;
}

int64_t AttentionStep::shared_bytes() const {
  // Splitting over blocks happens only when one tile covers all tokens of a slot.
  if (tokens_per_tile() < q.slot_rows) return 0;
  const int64_t blocks = (context + kAttentionBlock - 1) / kAttentionBlock;
  const int64_t pairs = int64_t(k.size()) * kv_heads;
  return pairs * (blocks * partial_floats() * 4 + int64_t(sizeof(std::atomic<int64_t>)));
}

void AttentionStep::run(const RunContext& run) const {
  const int64_t slots = int64_t(k.size());
  const int64_t live = q.limited ? std::min(run.live_rows, q.slot_rows) : q.slot_rows;
  const int64_t per_tile = tokens_per_tile();
  const int64_t tiles = (live + per_tile - 1) / per_tile;
  if (per_tile >= q.slot_rows && slots * kv_heads < 2 * run.pool.size()) {
    int64_t max_keys = 0;
    for (const SlotLengths& slot : lengths) max_keys = std::max(max_keys, run.length(slot.valid) + live);
    const int64_t blocks = (std::min(max_keys, context) + kAttentionBlock - 1) / kAttentionBlock;
    if (blocks > 1) return run_split(run, blocks);
  }
  // Later tiles see more keys: they go first, so that the last tasks are short.
  run.pool.parallel_for(slots * kv_heads * tiles, [&](int64_t task, int member) {
    const int64_t tile = tiles - 1 - task / (slots * kv_heads);
    const int64_t pair = task % (slots * kv_heads);
    const int64_t slot = pair / kv_heads;
    const int64_t first = tile * per_tile;
    attend_tile(run, {slot, pair % kv_heads, first, std::min(per_tile, live - first), run.length(lengths[slot].valid)},
                reinterpret_cast<float*>(run.member(member)));
  });
}

void AttentionStep::attend_tile(const RunContext& run, const Tile& tile, float* scratch) const {
  const int64_t rows = tile.rows(heads_per_kv());
  float* queries = scratch;
  float* running = queries + rows * head_dim;
  float* partial = running + partial_floats();
  load_queries(run, tile, queries);
  attend_block(run, tile, 0, queries, running, running + rows, running + 2 * rows);
  const int64_t blocks = (tile.keys(context) + kAttentionBlock - 1) / kAttentionBlock;
  for (int64_t block = 1; block < blocks; ++block) {
    // Rows whose last key lies before the block keep what they have.
    const int64_t skip = attend_block(run, tile, block, queries, partial, partial + rows, partial + 2 * rows);
    run.kernels.attention_merge({running + skip, running + rows + skip, running + 2 * rows + skip * head_dim,
                                 partial + skip, partial + rows + skip, partial + 2 * rows + skip * head_dim,
                                 rows - skip, head_dim});
  }
  store(run, tile, running + rows, running + 2 * rows);
}

// One task per (slot, KV head, block); whoever finishes the last block of a pair merges all of them in order.
void AttentionStep::run_split(const RunContext& run, int64_t max_blocks) const {
  const int64_t slots = int64_t(k.size());
  const int64_t pairs = slots * kv_heads;
  const int64_t live = q.limited ? std::min(run.live_rows, q.slot_rows) : q.slot_rows;
  auto* open_blocks = reinterpret_cast<std::atomic<int64_t>*>(run.shared_scratch);
  float* partials = reinterpret_cast<float*>(open_blocks + pairs);
  const auto tile_of = [&](int64_t pair) {
    const int64_t slot = pair / kv_heads;
    return Tile{slot, pair % kv_heads, 0, live, run.length(lengths[slot].valid)};
  };
  const auto blocks_of = [&](const Tile& tile) { return (tile.keys(context) + kAttentionBlock - 1) / kAttentionBlock; };
  for (int64_t pair = 0; pair < pairs; ++pair) open_blocks[pair].store(blocks_of(tile_of(pair)));

  run.pool.parallel_for(pairs * max_blocks, [&](int64_t task, int member) {
    const int64_t pair = task / max_blocks;
    const int64_t block = task % max_blocks;
    const Tile tile = tile_of(pair);
    const int64_t blocks = blocks_of(tile);
    if (block >= blocks) return;
    const int64_t rows = tile.rows(heads_per_kv());
    float* queries = reinterpret_cast<float*>(run.member(member));
    load_queries(run, tile, queries);
    float* first = partials + pair * max_blocks * partial_floats();
    float* mine = first + block * partial_floats();
    attend_block(run, tile, block, queries, mine, mine + rows, mine + 2 * rows);
    if (open_blocks[pair].fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    for (int64_t later = 1; later < blocks; ++later) {
      const float* next = first + later * partial_floats();
      const int64_t skip = tile.blind_rows(later, heads_per_kv());
      run.kernels.attention_merge({first + skip, first + rows + skip, first + 2 * rows + skip * head_dim, next + skip,
                                   next + rows + skip, next + 2 * rows + skip * head_dim, rows - skip, head_dim});
    }
    store(run, tile, first + rows, first + 2 * rows);
  });
}

// Rows are token-major: row = token * heads_per_kv + head.
void AttentionStep::load_queries(const RunContext& run, const Tile& tile, float* queries) const {
  const int64_t heads = heads_per_kv();
  for (int64_t token = 0; token < tile.count; ++token) {
    const int64_t row = tile.slot * q.slot_rows + tile.first + token;
    const std::byte* source = run.at(q.value) + (row * q.stride + tile.kv_head * heads * head_dim) * elem_bytes(elem);
    run.kernels.widen[elem]({source, queries + token * heads * head_dim, heads, head_dim, head_dim, head_dim, scale});
  }
}

// Returns how many leading rows see nothing of this block; their m, l and o are not written.
int64_t AttentionStep::attend_block(const RunContext& run, const Tile& tile, int64_t block, const float* queries,
                                    float* m, float* l, float* o) const {
  const int64_t heads = heads_per_kv();
  const int64_t rows = tile.rows(heads);
  const int64_t start = block * kAttentionBlock;
  int32_t keys[kMaxHeadsPerKv];  // rows <= max(kTileRows, heads)
  const int64_t skip = tile.blind_rows(block, heads);
  for (int64_t row = skip; row < rows; ++row) {
    const int64_t seen = std::min(tile.valid + tile.first + row / heads + 1, context) - start;
    keys[row] = int32_t(std::min(seen, kAttentionBlock));
  }
  const int64_t offset = (tile.kv_head * context + start) * head_dim * elem_bytes(cache_elem);
  run.kernels.attention_block[cache_elem]({queries + skip * head_dim, run.at(k[tile.slot]) + offset,
                                           run.at(v[tile.slot]) + offset, keys + skip, m + skip, l + skip,
                                           o + skip * head_dim, rows - skip, head_dim});
  return skip;
}

void AttentionStep::store(const RunContext& run, const Tile& tile, const float* l, const float* o) const {
  const int64_t heads = heads_per_kv();
  for (int64_t token = 0; token < tile.count; ++token) {
    const int64_t row = tile.slot * y.slot_rows + tile.first + token;
    std::byte* out = run.at(y.value) + (row * y.stride + tile.kv_head * heads * head_dim) * elem_bytes(elem);
    run.kernels.attention_finish[elem](
        {l + token * heads, o + token * heads * head_dim, out, heads, head_dim, head_dim});
  }
}

}  // namespace tcim_lite::cpu
