// Attention over the caches in blocks of 256 absolute rows (docs/numerics.md section 7). Work is split over slots, KV
// heads, tiles of query rows and, when those are too few for the pool, blocks; the result is the same however it is
// split.
#pragma once

#include <algorithm>
#include <utility>

#include "backends/cpu/ops/attention_mask.h"
#include "backends/cpu/ops/heads.h"
#include "backends/cpu/plan.h"

namespace tcim_lite::cpu {

struct AttentionStep final : Step, AttentionSpec {
  AttentionStep(AttentionSpec spec, const WeightFinder& finder)
      : AttentionSpec(std::move(spec)), sinks(finder.find<float>(sinks_id)) {}

  const float* sinks;  // [q_heads] or null

  void run(const RunContext& context) const override;
  int64_t shared_bytes() const override;
  int64_t member_bytes() const override;

 private:
  struct Tile;
  struct Partial;
  struct Scratch;
  struct Blocks {
    int64_t first, end;
  };
  // Of a step with masks, in its shared memory.
  int64_t seen_bytes() const { return masks.empty() ? 0 : SeenKeys::bytes(*this); }
  SeenKeys seen(const RunContext& context) const { return {*this, context.shared_scratch}; }
  Blocks blocks_of(const RunContext& context, const Tile& tile) const;
  int64_t live_tokens(const RunContext& context) const;
  Tile tile_of(const RunContext& context, int64_t slot, int64_t kv_head, int64_t first, int64_t count) const;
  int64_t tokens_of(int64_t tile_rows) const;
  int64_t tokens_per_tile(const RunContext& context, int64_t live_tokens) const;
  bool one_tile_a_slot() const;
  int64_t most_tile_rows() const;
  int64_t partial_floats() const;
  Scratch scratch_of(const RunContext& context, int member) const;
  void attend_tile(const RunContext& context, const Tile& tile, const Scratch& scratch) const;
  void run_split(const RunContext& context, int64_t first_block, int64_t end_block) const;
  void load_queries(const RunContext& context, const Tile& tile, float* queries) const;
  void attend_block(const RunContext& context, const Tile& tile, int64_t block, const Scratch& scratch,
                    const Partial& out) const;
  void attend_masked(const RunContext& context, const Tile& tile, int64_t block, const Scratch& scratch,
                     const Partial& out) const;
  struct Seen {
    const int32_t* keys;
    const int32_t* begins;
    const float* mask;
  };
  const std::byte* keys_after(const RunContext& context, const Tile& tile, int64_t block) const;
  void attend_rows(const RunContext& context, const Tile& tile, int64_t block, int64_t row, int64_t end,
                   const Scratch& scratch, const Partial& out, const Seen& what) const;
  void merge(const RunContext& context, const Tile& tile, int64_t block, const Partial& running,
             const Partial& later) const;
  void merge_masked(const RunContext& context, const Tile& tile, int64_t block, const Partial& running,
                    const Partial& later) const;
  void fill_blind(const RunContext& context, const Tile& tile, const Partial& running) const;
  void add_sinks(const RunContext& context, const Tile& tile, const Partial& running, const Partial& scratch) const;
  void store(const RunContext& context, const Tile& tile, const Partial& done) const;
};

// One after the other: attention reads all rows that its heads write.
struct HeadsAttentionStep final : Step {
  HeadsAttentionStep(HeadsAttentionSpec spec, const WeightFinder& finder)
      : heads(std::move(spec.heads), finder), attention(std::move(spec.attention), finder) {}

  void run(const RunContext& context) const override {
    heads.run(context);
    attention.run(context);
  }
  int64_t shared_bytes() const override { return attention.shared_bytes(); }
  int64_t member_bytes() const override { return std::max(heads.member_bytes(), attention.member_bytes()); }

  const HeadsStep heads;
  const AttentionStep attention;
};

}  // namespace tcim_lite::cpu
