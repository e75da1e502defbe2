#include "graph/memory_plan.h"

#include <algorithm>
#include <numeric>

namespace tcim_lite {
namespace {

uint64_t padded(uint64_t bytes) { return (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment; }

bool overlap(const Lifetime& a, const Lifetime& b) {
  return a.first_step <= b.last_step && b.first_step <= a.last_step;
}

}  // namespace

MemoryPlan plan_memory(std::span<const Lifetime> lifetimes) {
  std::vector<uint32_t> by_size(lifetimes.size());
  std::iota(by_size.begin(), by_size.end(), 0u);
  std::stable_sort(by_size.begin(), by_size.end(),
                   [&](uint32_t a, uint32_t b) { return lifetimes[a].bytes > lifetimes[b].bytes; });

  MemoryPlan plan;
  plan.offsets.assign(lifetimes.size(), 0);
  std::vector<uint32_t> placed;  // ascending offsets
  for (uint32_t id : by_size) {
    const uint64_t bytes = padded(lifetimes[id].bytes);
    if (bytes == 0) continue;
    uint64_t best = 0, best_gap = UINT64_MAX, end = 0;  // end: of the buffers seen that are alive with this one
    for (uint32_t other : placed) {
      if (!overlap(lifetimes[id], lifetimes[other])) continue;
      const uint64_t begin = plan.offsets[other];
      if (begin >= end + bytes && begin - end < best_gap) {
        best = end;
        best_gap = begin - end;
      }
      end = std::max(end, begin + padded(lifetimes[other].bytes));
    }
    if (best_gap == UINT64_MAX) best = end;
    plan.offsets[id] = best;
    plan.total_bytes = std::max(plan.total_bytes, best + bytes);
    const auto later = [&](uint64_t offset, uint32_t other) { return offset < plan.offsets[other]; };
    placed.insert(std::upper_bound(placed.begin(), placed.end(), best, later), id);
  }
  return plan;
}

}  // namespace tcim_lite
