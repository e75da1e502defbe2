#include "backends/cpu/ops/attention_mask.h"

namespace tcim_lite::cpu {
namespace {

int64_t num_blocks(const AttentionSpec& spec) { return (spec.context + kAttentionBlock - 1) / kAttentionBlock; }

int64_t num_rows(const AttentionSpec& spec) { return int64_t(spec.masks.size()) * spec.q.slot_rows; }

bool hides(float value) { return value <= kHidden; }
// float16 of the same: its lowest value, -infinity behind it.
bool hides(uint16_t bits) { return bits >= 0xFBFF; }

bool is_zero(float value) { return value == 0; }
bool is_zero(uint16_t bits) { return (bits & 0x7FFF) == 0; }

template <typename T>
SeenKeys::Span span_of(const T* mask, int64_t count) {
  int64_t begin = 0, end = count;
  while (begin < end && hides(mask[begin])) ++begin;
  if (begin == end) return {};
  while (hides(mask[end - 1])) --end;
  const bool plain = std::all_of(mask + begin, mask + end, [](T value) { return is_zero(value); });
  return {int16_t(begin), int16_t(end), plain};
}

}  // namespace

int64_t SeenKeys::bytes(const AttentionSpec& spec) {
  constexpr int64_t kLine = 64;
  const int64_t bytes = num_rows(spec) * (2 * int64_t(sizeof(int32_t)) + num_blocks(spec) * int64_t(sizeof(Span)));
  return (bytes + kLine - 1) / kLine * kLine;
}

SeenKeys::SeenKeys(const AttentionSpec& spec, std::byte* memory)
    : spec_(spec),
      blocks_(num_blocks(spec)),
      edges_(reinterpret_cast<int32_t*>(memory)),
      spans_(reinterpret_cast<Span*>(edges_ + 2 * num_rows(spec))) {}

void SeenKeys::find(const RunContext& run, int64_t live) const {
  for_rows(run, int64_t(spec_.masks.size()) * live, [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t slot = row / live, token = row % live;
      spec_.elem == kF16 ? find_row<uint16_t>(run, slot, token) : find_row<float>(run, slot, token);
    }
  });
}

template <typename T>
void SeenKeys::find_row(const RunContext& run, int64_t slot, int64_t token) const {
  const int64_t first = spec_.first_masked(run.length(spec_.lengths[slot].valid));
  const int64_t last = std::min(first + spec_.mask_cols, spec_.context);  // columns behind the cache are about nothing
  // What the lengths and the window show, where they count besides.
  const int64_t own_end = spec_.by_lengths ? run.length(spec_.lengths[slot].valid) + token + 1 : last;
  const int64_t own_begin = spec_.by_lengths ? own_end - spec_.window : first;
  const T* mask = reinterpret_cast<const T*>(run.at(spec_.masks[slot])) + token * spec_.mask_step;
  Span* spans = spans_ + row(slot, token) * blocks_;
  int32_t* edges = edges_ + 2 * row(slot, token);
  edges[0] = edges[1] = 0;
  for (int64_t block = 0; block < blocks_; ++block) {
    const int64_t start = block * kAttentionBlock;
    const int64_t begin = std::max({first, start, own_begin});
    const int64_t end = std::min({last, start + kAttentionBlock, own_end});
    spans[block] = begin < end ? span_of(mask + (begin - first), end - begin) : Span{};
    if (spans[block].empty()) continue;
    spans[block].begin += int16_t(begin - start);
    spans[block].end += int16_t(begin - start);
    if (edges[1] == 0) edges[0] = int32_t(block);
    edges[1] = int32_t(block + 1);
  }
}

}  // namespace tcim_lite::cpu
