// What happens to q, k and v between the merged projection and attention, head by head and row by row: RMSNorm, RoPE,
// then a store or the write into the caches. The chains of one layer share a pass over the rows.
#pragma once

#include <vector>

#include "backends/cpu/plan.h"

namespace tcim_lite::cpu {

struct HeadChain {
  Rows x;  // [rows, heads * head_dim]
  int64_t heads = 0, head_dim = 0;
  const float* norm_weight = nullptr;  // [head_dim]
  float norm_epsilon = 0;

  const std::byte* cos = nullptr;  // [table_rows, head_dim / 2] of table_elem; null without RoPE
  const std::byte* sin = nullptr;
  Elem table_elem = kF16;
  int64_t table_rows = 0;
  std::vector<uint32_t> rope_valid;  // per slot

  // Destination: rows of y, or, when `caches` is not empty, cache rows [valid, valid + current) of each slot.
  Rows y;
  std::vector<uint32_t> caches;  // per slot, [1, heads, context, head_dim] of cache_elem
  std::vector<SlotLengths> lengths;
  Elem cache_elem = kF16;
  int64_t context = 0;
};

struct HeadsStep final : Step {
  Elem elem;
  std::vector<HeadChain> chains;

  void run(const RunContext& context) const override;
  int64_t member_bytes() const override;

 private:
  void run_row(const RunContext& context, const HeadChain& chain, int64_t row, std::byte* scratch) const;
};

}  // namespace tcim_lite::cpu
