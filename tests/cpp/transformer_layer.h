// A transformer layer over several slots.
#pragma once

#include <cstdint>
#include <vector>

#include "graph_maker.h"

namespace tcim_lite::test {

struct Length {
  uint32_t id;
  int32_t value;
};

struct LayerSizes {
  int64_t slots, tokens, hidden, heads, kv_heads, head_dim, context, inner;
  int32_t filled = 0;  // rows of the first slot's caches
  int64_t window = 0;
};

// Adds the layer, and two lengths for each slot. `live`: half of the rows are, by the second length of slot 0.
inline uint32_t add_layer(GraphMaker& maker, WeightFormat format, const LayerSizes& sizes, bool live,
                          std::vector<Length>& lengths) {
  const auto& [slots, tokens, hidden, heads, kv_heads, dim, context, inner, filled, window] = sizes;
  uint32_t x = maker.input({slots, tokens, hidden});
  std::vector<uint32_t> valid, current, keys, values;
  for (int64_t slot = 0; slot < slots; ++slot) {
    lengths.push_back({maker.length(), int32_t(filled + 17 * slot)});
    valid.push_back(lengths.back().id);
    lengths.push_back({maker.length(), int32_t(live ? (tokens + 1) / 2 : tokens)});
    current.push_back(lengths.back().id);
    keys.push_back(maker.cache({1, kv_heads, context, dim}));
    values.push_back(maker.cache({1, kv_heads, context, dim}));
  }
  if (live) maker.graph().live_rows = current[0];
  const uint32_t qkv = maker.linear(maker.rms_norm(x), (heads + 2 * kv_heads) * dim, format, true);
  const auto part = [&, head_dim = sizes.head_dim](int64_t first, int64_t count) {
    return maker.reshape(maker.slice(qkv, first * head_dim, (first + count) * head_dim),
                         {sizes.slots, sizes.tokens, count, head_dim});
  };
  const uint32_t q = maker.rope(maker.rms_norm(part(0, heads)), context, valid);
  const uint32_t k = maker.rope(maker.rms_norm(part(heads, kv_heads)), context, valid);
  std::vector<uint32_t> k_operands, v_operands, attended;
  for (int64_t slot = 0; slot < slots; ++slot) {
    for (uint32_t id : {keys[slot], valid[slot], current[slot]}) k_operands.push_back(id);
    for (uint32_t id : {values[slot], valid[slot], current[slot]}) v_operands.push_back(id);
  }
  const auto k_caches = maker.kv_cache(k, k_operands);
  const auto v_caches = maker.kv_cache(part(heads + kv_heads, kv_heads), v_operands);
  for (int64_t slot = 0; slot < slots; ++slot) {
    for (uint32_t id : {k_caches[slot], v_caches[slot], valid[slot], current[slot]}) attended.push_back(id);
  }
  x = maker.add(x, maker.linear(maker.attention(q, attended, window), hidden, format));
  const uint32_t gate_up = maker.linear(maker.rms_norm(x), 2 * inner, format);
  return maker.add(maker.linear(maker.silu_mul(gate_up), hidden, format), x);
}

}  // namespace tcim_lite::test
