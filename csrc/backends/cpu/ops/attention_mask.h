// What masks that are inputs let tokens see (docs/numerics.md section 7). Found once for all KV heads of a step, since
// a mask has no heads; attention then reads no key that a mask hides at the edges of a block.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backends/cpu/plan.h"

namespace tcim_lite::cpu {

class SeenKeys {
 public:
  // Of the keys of a block, those from the first to the last that the mask does not hide.
  struct Span {
    int16_t begin = 0, end = 0;  // equal: none
    bool plain = true;           // the mask is zero on all of them
    bool empty() const { return begin == end; }
  };

  static int64_t bytes(const AttentionSpec& spec);
  // In `memory` of bytes().
  SeenKeys(const AttentionSpec& spec, std::byte* memory);

  // Reads the masks of the first `live` tokens of each slot.
  void find(const RunContext& run, int64_t live) const;

  const Span& in_block(int64_t slot, int64_t token, int64_t block) const {
    return spans_[row(slot, token) * blocks_ + block];
  }
  // Blocks [first, end) hold all that a token sees. One that sees nothing has none: first is no block of its.
  int64_t first_block(int64_t slot, int64_t token) const { return edges_[2 * row(slot, token)]; }
  int64_t end_block(int64_t slot, int64_t token) const { return edges_[2 * row(slot, token) + 1]; }
  bool sees_nothing(int64_t slot, int64_t token) const { return end_block(slot, token) == 0; }

 private:
  int64_t row(int64_t slot, int64_t token) const { return slot * spec_.q.slot_rows + token; }
  template <typename T>
  void find_row(const RunContext& run, int64_t slot, int64_t token) const;

  const AttentionSpec& spec_;
  int64_t blocks_;
  int32_t* edges_;  // [slots, tokens, 2]
  Span* spans_;     // [slots, tokens, blocks]
};

}  // namespace tcim_lite::cpu
