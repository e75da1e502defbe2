// The steps of a plan as this backend runs them. Running them allocates nothing and looks nothing up.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "backends/backend.h"
#include "backends/cpu/kernel_table.h"
#include "backends/cpu/layouts.h"
#include "base/aligned_buffer.h"
#include "base/thread_pool.h"
#include "graph/plan/steps.h"

namespace tcim_lite::cpu {

struct RunContext {
  const KernelTable& kernels;
  ThreadPool& pool;
  std::byte* const* values;  // [value id] storage; null for weights and for values a fusion removed
  int64_t live_rows;
  std::byte* shared_scratch;                // one step's own, 64-byte aligned
  std::span<AlignedBuffer> member_scratch;  // one per pool member
  std::atomic<bool>& odd_attention;         // becomes true when attention meets a NaN or an infinity

  std::byte* at(uint32_t value) const { return values[value]; }
  int64_t rows_of(const Rows& x) const { return x.limited && live_rows < x.rows ? live_rows : x.rows; }
  int64_t length(uint32_t value) const { return *reinterpret_cast<const int32_t*>(values[value]); }
  std::byte* member(int index) const { return member_scratch[index].data(); }
};

// Finds the bytes of weights by value id, and how the other values lie.
class WeightFinder {
 public:
  WeightFinder(const Graph& graph, const std::vector<WeightBytes>& weights, const Layouts& layouts)
      : graph_(graph), weights_(weights), layouts_(layouts) {}

  bool in_blocks(uint32_t id) const { return layouts_.in_blocks(id); }
  const ConvSpec* joined(uint32_t id) const { return layouts_.joined(id); }

  // Null for kNoValue.
  template <typename T>
  const T* find(uint32_t id) const {
    return id == kNoValue ? nullptr : reinterpret_cast<const T*>(weights_[graph_.values[id].weight].data());
  }

 private:
  const Graph& graph_;
  const std::vector<WeightBytes>& weights_;
  const Layouts& layouts_;
};

class Step {
 public:
  virtual ~Step() = default;
  virtual void run(const RunContext& context) const = 0;
  // Scratch this step needs: one block for the step, one for each pool member.
  virtual int64_t shared_bytes() const { return 0; }
  virtual int64_t member_bytes() const { return 0; }
};

// A step that needs nothing besides what the plan says of it. Each has a `run` of its own.
template <typename Spec>
struct PlainStep final : Step, Spec {
  PlainStep(Spec spec, const WeightFinder&) : Spec(std::move(spec)) {}
  void run(const RunContext& context) const override;
};

// Runs body(row_begin, row_end, member) over [0, rows): in one go when a region would cost more than it saves, else
// over the pool.
template <typename Body>
void for_rows(const RunContext& context, int64_t rows, const Body& body) {
  constexpr int64_t kMinRows = 4, kMinTile = 2, kMaxTile = 8;
  if (rows < kMinRows) {
    body(int64_t{0}, rows, 0);
    return;
  }
  const int64_t tile = std::clamp((rows + context.pool.size() - 1) / context.pool.size(), kMinTile, kMaxTile);
  context.pool.parallel_runs((rows + tile - 1) / tile, [&](int64_t index, int member) {
    const int64_t begin = index * tile;
    body(begin, std::min(begin + tile, rows), member);
  });
}

}  // namespace tcim_lite::cpu
