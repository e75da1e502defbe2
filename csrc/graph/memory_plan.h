// Places buffers that live during part of a run in one arena.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tcim_lite {

constexpr uint64_t kArenaAlignment = 64;

// Steps are inclusive: a buffer read in the step that writes another one shares no byte with it.
struct Lifetime {
  uint32_t first_step;
  uint32_t last_step;
  uint64_t bytes;
};

struct MemoryPlan {
  std::vector<uint64_t> offsets;  // per lifetime, multiples of 64
  uint64_t total_bytes = 0;       // multiple of 64
};

// Greedy: the largest buffer first, each into the tightest gap between buffers alive at the same time. Quadratic in the
// number of buffers; deterministic.
MemoryPlan plan_memory(std::span<const Lifetime> lifetimes);

}  // namespace tcim_lite
