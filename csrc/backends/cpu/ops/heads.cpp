#include "backends/cpu/ops/heads.h"

#include <algorithm>
#include <cstring>

namespace tcim_lite::cpu {
namespace {

// Scratch of one row: the heads in fp32 at most, then cos and sin in fp32.
int64_t heads_bytes(const HeadChain& chain) { return (chain.heads * chain.head_dim * 4 + 63) / 64 * 64; }

// A position outside the tables belongs to a row that is dropped or is padding, or was given so.
int64_t table_row_of(const RunContext& context, const HeadChain& chain, int64_t row) {
  if (chain.tables_computed) return row;
  const int64_t slot = row / chain.x.slot_rows, token = row % chain.x.slot_rows;
  const auto* where = reinterpret_cast<const int32_t*>(context.at(chain.rope_valid[slot]));
  const int64_t position = chain.rope_given ? where[token] : where[0] + token;
  return std::clamp(position, int64_t{0}, chain.table_rows - 1);
}

}  // namespace

int64_t HeadsStep::member_bytes() const {
  int64_t bytes = 0;
  for (const HeadChain& chain : chains) bytes = std::max(bytes, 2 * heads_bytes(chain) + chain.head_dim * 4 + 128);
  return bytes;
}

void HeadsStep::run(const RunContext& context) const {
  const int64_t rows = context.rows_of(chains.front().x);
  for_rows(context, rows, [&](int64_t begin, int64_t end, int member) {
    for (int64_t row = begin; row < end; ++row) {
      for (const HeadChain& chain : chains) run_row(context, chain, row, context.member(member));
    }
  });
}

void HeadsStep::run_row(const RunContext& context, const HeadChain& chain, int64_t row, std::byte* scratch) const {
  const KernelTable& kernels = context.kernels;
  const int64_t size = elem_bytes(elem);
  const int64_t slot = row / chain.x.slot_rows;
  const int64_t token = row % chain.x.slot_rows;
  const int64_t dim = chain.head_dim;
  const bool to_cache = !chain.caches.empty();

  const std::byte* heads = context.at(chain.x.value) + row * chain.x.stride * size;
  std::byte* out = to_cache ? scratch : context.at(chain.y.value) + row * chain.y.stride * size;
  if (chain.norm_weight != nullptr) {
    kernels.rms_norm[elem]({heads, out, chain.norm_weight, chain.heads, dim, dim, dim, chain.norm_epsilon});
    heads = out;
  }
  if (chain.cos_id != kNoValue) {
    const int64_t half = chain.rotary_dim / 2;
    float* cos = reinterpret_cast<float*>(scratch + 2 * heads_bytes(chain));
    float* sin = cos + half;
    const std::byte* cosines = chain.tables_computed ? context.at(chain.cos_id) : chain.cos;
    const std::byte* sines = chain.tables_computed ? context.at(chain.sin_id) : chain.sin;
    const int64_t table_row = table_row_of(context, chain, row) * half * elem_bytes(chain.table_elem);
    kernels.widen[chain.table_elem]({cosines + table_row, cos, 1, half, half, half, 1.0f});
    kernels.widen[chain.table_elem]({sines + table_row, sin, 1, half, half, half, 1.0f});
    // What does not turn is copied before, where the kernel does not work in place.
    if (chain.rotary_dim < dim && heads != out) std::memcpy(out, heads, chain.heads * dim * size);
    kernels.rope[elem]({heads, out, cos, sin, chain.heads, chain.rotary_dim, dim, dim});
    heads = out;
  }
  if (!to_cache) {
    if (heads != out) std::memcpy(out, heads, chain.heads * dim * size);
    return;
  }

  const int64_t position = context.length(chain.lengths[slot].valid) + token;
  if (token >= context.length(chain.lengths[slot].current) || position >= chain.context) return;
  const std::byte* rounded = heads;
  const int64_t cache_size = elem_bytes(chain.cache_elem);
  if (chain.cache_elem != elem) {  // TCIM_LITE_NUMERICS=float over an fp16 cache
    std::byte* narrowed = scratch + heads_bytes(chain);
    kernels.narrow[chain.cache_elem](
        {reinterpret_cast<const float*>(heads), narrowed, 1, chain.heads * dim, chain.heads * dim, chain.heads * dim});
    rounded = narrowed;
  }
  std::byte* cache = context.at(chain.caches[slot]);
  for (int64_t head = 0; head < chain.heads; ++head) {
    std::memcpy(cache + (head * chain.context + position) * dim * cache_size, rounded + head * dim * cache_size,
                dim * cache_size);
  }
}

}  // namespace tcim_lite::cpu
