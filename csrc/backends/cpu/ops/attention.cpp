#include <algorithm>
#include <atomic>
#include <limits>

#include "backends/cpu/ops/attention_tile.h"

namespace tcim_lite::cpu {
namespace {

// Query rows (tokens x heads of a KV head) that share one pass over K and V, which widens them: with few tasks, which
// threads have to share, and with many.
constexpr int64_t kTileRows = 64, kWideTileRows = 128;

}  // namespace

int64_t AttentionStep::live_tokens(const RunContext& run) const {
  return q.limited ? std::min(run.live_rows, q.slot_rows) : q.slot_rows;
}

int64_t AttentionStep::tokens_of(int64_t tile_rows) const {
  return std::clamp<int64_t>(tile_rows / heads_per_kv(), 1, q.slot_rows);
}

int64_t AttentionStep::tokens_per_tile(const RunContext& run, int64_t live) const {
  const int64_t wide = tokens_of(kWideTileRows), tasks = int64_t(k.size()) * kv_heads * ((live + wide - 1) / wide);
  return tasks < 8 * run.pool.size() ? tokens_of(kTileRows) : wide;
}

bool AttentionStep::one_tile_a_slot() const { return tokens_of(kTileRows) == q.slot_rows; }

int64_t AttentionStep::most_tile_rows() const { return tokens_of(kWideTileRows) * heads_per_kv(); }

// m, l and o of one tile.
int64_t AttentionStep::partial_floats() const { return most_tile_rows() * (head_dim + 2); }

int64_t AttentionStep::member_bytes() const { return Scratch::bytes(most_tile_rows(), head_dim, partial_floats()); }

AttentionStep::Scratch AttentionStep::scratch_of(const RunContext& run, int member) const {
  return {run.member(member), most_tile_rows(), head_dim};
}

int64_t AttentionStep::shared_bytes() const {
  // Splitting over blocks happens only when one tile covers all tokens of a slot.
  if (!one_tile_a_slot()) return seen_bytes();
  const int64_t pairs = int64_t(k.size()) * kv_heads;
  return seen_bytes() + pairs * (num_blocks(context) * partial_floats() * 4 + int64_t(sizeof(std::atomic<int64_t>)));
}

void AttentionStep::run(const RunContext& run) const {
  const int64_t slots = int64_t(k.size());
  const int64_t live = live_tokens(run);
  const int64_t per_tile = tokens_per_tile(run, live);
  const int64_t tiles = (live + per_tile - 1) / per_tile;
  if (!masks.empty()) seen(run).find(run, live);
  if (one_tile_a_slot() && slots * kv_heads < 2 * run.pool.size()) {
    int64_t first = std::numeric_limits<int64_t>::max(), end = 0;
    for (int64_t slot = 0; slot < slots; ++slot) {
      const Blocks blocks = blocks_of(run, tile_of(run, slot, 0, 0, live));
      first = std::min(first, blocks.first);
      end = std::max(end, blocks.end);
    }
    if (end - first > 1) return run_split(run, first, end);
  }
  const auto attend = [&](int64_t task, int member) {
    const int64_t tile = tiles - 1 - task / (slots * kv_heads);
    const int64_t pair = task % (slots * kv_heads);
    const int64_t slot = pair / kv_heads;
    const int64_t first = tile * per_tile;
    attend_tile(run, tile_of(run, slot, pair % kv_heads, first, std::min(per_tile, live - first)),
                scratch_of(run, member));
  };
  // Later tiles see more keys: they go first, so that the last tasks are short.
  tiles == 1 ? run.pool.parallel_runs(slots * kv_heads, attend)
             : run.pool.parallel_for(slots * kv_heads * tiles, attend);
}

void AttentionStep::attend_tile(const RunContext& run, const Tile& tile, const Scratch& scratch) const {
  const int64_t rows = tile.rows(heads_per_kv());
  const Partial running(scratch.partials, rows);
  const Partial later(scratch.partials + partial_floats(), rows);
  load_queries(run, tile, scratch.queries);
  const auto [first, end] = blocks_of(run, tile);
  attend_block(run, tile, first, scratch, running);
  for (int64_t block = first + 1; block < end; ++block) {
    attend_block(run, tile, block, scratch, later);
    merge(run, tile, block, running, later);
  }
  fill_blind(run, tile, running);
  add_sinks(run, tile, running, later);
  store(run, tile, running);
}

// One task per (slot, KV head, block). The task that finishes the last block of a pair merges all blocks in order.
void AttentionStep::run_split(const RunContext& run, int64_t first_block, int64_t end_block) const {
  const int64_t max_blocks = end_block - first_block;
  const int64_t slots = int64_t(k.size());
  const int64_t pairs = slots * kv_heads;
  const int64_t live = live_tokens(run);
  auto* open_blocks = reinterpret_cast<std::atomic<int64_t>*>(run.shared_scratch + seen_bytes());
  float* partials = reinterpret_cast<float*>(open_blocks + pairs);
  const auto tile_of_pair = [&](int64_t pair) { return tile_of(run, pair / kv_heads, pair % kv_heads, 0, live); };
  for (int64_t pair = 0; pair < pairs; ++pair) {
    const Blocks blocks = blocks_of(run, tile_of_pair(pair));
    open_blocks[pair].store(blocks.end - blocks.first);
  }

  run.pool.parallel_runs(pairs * max_blocks, [&](int64_t task, int member) {
    const int64_t pair = task / max_blocks;
    const int64_t block = first_block + task % max_blocks;
    const Tile tile = tile_of_pair(pair);
    const auto [first, end] = blocks_of(run, tile);
    if (block < first || block >= end) return;
    const int64_t rows = tile.rows(heads_per_kv());
    const Scratch scratch = scratch_of(run, member);
    load_queries(run, tile, scratch.queries);
    const auto partial_of = [&](int64_t index) {
      return Partial(partials + (pair * max_blocks + index - first_block) * partial_floats(), rows);
    };
    attend_block(run, tile, block, scratch, partial_of(block));
    if (open_blocks[pair].fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    for (int64_t later = first + 1; later < end; ++later) merge(run, tile, later, partial_of(first), partial_of(later));
    fill_blind(run, tile, partial_of(first));
    add_sinks(run, tile, partial_of(first), Partial(scratch.partials, rows));
    store(run, tile, partial_of(first));
  });
}

AttentionStep::Tile AttentionStep::tile_of(const RunContext& run, int64_t slot, int64_t kv_head, int64_t first,
                                           int64_t count) const {
  return {slot, kv_head, first, count, run.length(lengths[slot].valid), context, window};
}

// Those with a key that a token sees; at least one.
AttentionStep::Blocks AttentionStep::blocks_of(const RunContext& run, const Tile& tile) const {
  if (masks.empty()) return {tile.begin(0) / kAttentionBlock, num_blocks(tile.end(tile.count - 1))};
  const SeenKeys seen = this->seen(run);
  Blocks blocks{num_blocks(context), 0};
  for (int64_t token = tile.first; token < tile.first + tile.count; ++token) {
    if (seen.sees_nothing(tile.slot, token)) continue;
    blocks.first = std::min(blocks.first, seen.first_block(tile.slot, token));
    blocks.end = std::max(blocks.end, seen.end_block(tile.slot, token));
  }
  return blocks.end == 0 ? Blocks{0, 1} : blocks;
}

// Rows whose last key is before the block stay unchanged; rows whose first key is in the block start with it.
void AttentionStep::merge(const RunContext& run, const Tile& tile, int64_t block, const Partial& running,
                          const Partial& later) const {
  if (!masks.empty()) return merge_masked(run, tile, block, running, later);
  const int64_t skip = tile.blind_rows(block, heads_per_kv());
  const int64_t fresh = std::max(skip, tile.begun_rows(block - 1, heads_per_kv()));
  const int64_t end = tile.begun_rows(block, heads_per_kv());
  run.kernels.attention_merge({running.m + skip, running.l + skip, running.o + skip * head_dim, later.m + skip,
                               later.l + skip, later.o + skip * head_dim, fresh - skip, head_dim});
  std::copy(later.m + fresh, later.m + end, running.m + fresh);
  std::copy(later.l + fresh, later.l + end, running.l + fresh);
  std::copy(later.o + fresh * head_dim, later.o + end * head_dim, running.o + fresh * head_dim);
}

// Of a mask any token may see the block, whatever those before it see.
void AttentionStep::merge_masked(const RunContext& run, const Tile& tile, int64_t block, const Partial& running,
                                 const Partial& later) const {
  const SeenKeys seen = this->seen(run);
  const int64_t heads = heads_per_kv();
  for (int64_t token = 0; token < tile.count; ++token) {
    if (seen.in_block(tile.slot, tile.first + token, block).empty()) continue;
    const int64_t row = token * heads, end = row + heads;
    if (seen.first_block(tile.slot, tile.first + token) < block) {
      run.kernels.attention_merge({running.m + row, running.l + row, running.o + row * head_dim, later.m + row,
                                   later.l + row, later.o + row * head_dim, heads, head_dim});
      continue;
    }
    std::copy(later.m + row, later.m + end, running.m + row);
    std::copy(later.l + row, later.l + end, running.l + row);
    std::copy(later.o + row * head_dim, later.o + end * head_dim, running.o + row * head_dim);
  }
}

// What a token sees nothing with is zero, with and without sinks.
void AttentionStep::fill_blind(const RunContext& run, const Tile& tile, const Partial& running) const {
  if (masks.empty()) return;
  const SeenKeys seen = this->seen(run);
  const int64_t heads = heads_per_kv();
  for (int64_t token = 0; token < tile.count; ++token) {
    if (!seen.sees_nothing(tile.slot, tile.first + token)) continue;
    std::fill_n(running.m + token * heads, heads, 0.0f);
    std::fill_n(running.l + token * heads, heads, 1.0f);
    std::fill_n(running.o + token * heads * head_dim, heads * head_dim, 0.0f);
  }
}

// A sink is a later block of one key whose value is zero.
void AttentionStep::add_sinks(const RunContext& run, const Tile& tile, const Partial& running,
                              const Partial& scratch) const {
  if (sinks == nullptr) return;
  const int64_t heads = heads_per_kv(), rows = tile.rows(heads);
  for (int64_t row = 0; row < rows; ++row) {
    scratch.m[row] = sinks[tile.kv_head * heads + row % heads];
    scratch.l[row] = 1.0f;
  }
  std::fill(scratch.o, scratch.o + rows * head_dim, 0.0f);
  run.kernels.attention_merge({running.m, running.l, running.o, scratch.m, scratch.l, scratch.o, rows, head_dim});
}

}  // namespace tcim_lite::cpu
