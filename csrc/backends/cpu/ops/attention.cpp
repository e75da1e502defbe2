#include "backends/cpu/ops/attention.h"

#include <algorithm>
#include <atomic>

namespace tcim_lite::cpu {
namespace {

constexpr int64_t kTileRows = 64;  // query rows (tokens x heads of a KV head) that share one pass over K and V

int64_t blocks_of(int64_t keys) { return (keys + kAttentionBlock - 1) / kAttentionBlock; }

}  // namespace

// Tokens [first, first + count) of one slot and one KV head.
struct AttentionStep::Tile {
  int64_t slot, kv_head, first, count, valid;

  int64_t rows(int64_t heads) const { return count * heads; }
  // Leading rows whose last key lies before the block.
  int64_t blind_rows(int64_t block, int64_t heads) const {
    return std::clamp<int64_t>(block * kAttentionBlock - valid - first, 0, count) * heads;
  }
  // Blocks with a key that the last token sees.
  int64_t blocks(int64_t context) const { return blocks_of(std::min(valid + first + count, context)); }
};

// (m, l, o) of the rows of a tile, one after the other in partial_floats() floats.
struct AttentionStep::Partial {
  float* m;
  float* l;
  float* o;

  Partial(float* floats, int64_t rows) : m(floats), l(floats + rows), o(floats + 2 * rows) {}
};

int64_t AttentionStep::live_tokens(const RunContext& run) const {
  return q.limited ? std::min(run.live_rows, q.slot_rows) : q.slot_rows;
}

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
  const int64_t pairs = int64_t(k.size()) * kv_heads;
  return pairs * (blocks_of(context) * partial_floats() * 4 + int64_t(sizeof(std::atomic<int64_t>)));
}

void AttentionStep::run(const RunContext& run) const {
  const int64_t slots = int64_t(k.size());
  const int64_t live = live_tokens(run);
  const int64_t per_tile = tokens_per_tile();
  const int64_t tiles = (live + per_tile - 1) / per_tile;
  if (per_tile >= q.slot_rows && slots * kv_heads < 2 * run.pool.size()) {
    int64_t max_keys = 0;
    for (const SlotLengths& slot : lengths) max_keys = std::max(max_keys, run.length(slot.valid) + live);
    const int64_t blocks = blocks_of(std::min(max_keys, context));
    if (blocks > 1) return run_split(run, blocks);
  }
  const auto attend = [&](int64_t task, int member) {
    const int64_t tile = tiles - 1 - task / (slots * kv_heads);
    const int64_t pair = task % (slots * kv_heads);
    const int64_t slot = pair / kv_heads;
    const int64_t first = tile * per_tile;
    attend_tile(run, {slot, pair % kv_heads, first, std::min(per_tile, live - first), run.length(lengths[slot].valid)},
                reinterpret_cast<float*>(run.member(member)));
  };
  // Later tiles see more keys: they go first, so that the last tasks are short.
  tiles == 1 ? run.pool.parallel_runs(slots * kv_heads, attend)
             : run.pool.parallel_for(slots * kv_heads * tiles, attend);
}

void AttentionStep::attend_tile(const RunContext& run, const Tile& tile, float* scratch) const {
  const int64_t rows = tile.rows(heads_per_kv());
  float* queries = scratch;
  const Partial running(queries + rows * head_dim, rows);
  const Partial later(running.m + partial_floats(), rows);
  load_queries(run, tile, queries);
  attend_block(run, tile, 0, queries, running);
  for (int64_t block = 1; block < tile.blocks(context); ++block) {
    attend_block(run, tile, block, queries, later);
    merge(run, tile, block, running, later);
  }
  store(run, tile, running);
}

// One task per (slot, KV head, block); whoever finishes the last block of a pair merges all of them in order.
void AttentionStep::run_split(const RunContext& run, int64_t max_blocks) const {
  const int64_t slots = int64_t(k.size());
  const int64_t pairs = slots * kv_heads;
  const int64_t live = live_tokens(run);
  auto* open_blocks = reinterpret_cast<std::atomic<int64_t>*>(run.shared_scratch);
  float* partials = reinterpret_cast<float*>(open_blocks + pairs);
  const auto tile_of = [&](int64_t pair) {
    const int64_t slot = pair / kv_heads;
    return Tile{slot, pair % kv_heads, 0, live, run.length(lengths[slot].valid)};
  };
  for (int64_t pair = 0; pair < pairs; ++pair) open_blocks[pair].store(tile_of(pair).blocks(context));

  run.pool.parallel_runs(pairs * max_blocks, [&](int64_t task, int member) {
    const int64_t pair = task / max_blocks;
    const int64_t block = task % max_blocks;
    const Tile tile = tile_of(pair);
    const int64_t blocks = tile.blocks(context);
    if (block >= blocks) return;
    const int64_t rows = tile.rows(heads_per_kv());
    float* queries = reinterpret_cast<float*>(run.member(member));
    load_queries(run, tile, queries);
    const auto partial_of = [&](int64_t index) {
      return Partial(partials + (pair * max_blocks + index) * partial_floats(), rows);
    };
    attend_block(run, tile, block, queries, partial_of(block));
    if (open_blocks[pair].fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    for (int64_t later = 1; later < blocks; ++later) merge(run, tile, later, partial_of(0), partial_of(later));
    store(run, tile, partial_of(0));
  });
}

// Rows whose last key lies before the block keep what they have.
void AttentionStep::merge(const RunContext& run, const Tile& tile, int64_t block, const Partial& running,
                          const Partial& later) const {
  const int64_t skip = tile.blind_rows(block, heads_per_kv());
  run.kernels.attention_merge({running.m + skip, running.l + skip, running.o + skip * head_dim, later.m + skip,
                               later.l + skip, later.o + skip * head_dim, tile.rows(heads_per_kv()) - skip, head_dim});
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

// Leading rows that see nothing of the block are not written.
void AttentionStep::attend_block(const RunContext& run, const Tile& tile, int64_t block, const float* queries,
                                 const Partial& out) const {
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
                                           run.at(v[tile.slot]) + offset, keys + skip, out.m + skip, out.l + skip,
                                           out.o + skip * head_dim, rows - skip, head_dim});
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
