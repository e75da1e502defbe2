// A graph made ready to run: a flat array of steps. Running them allocates nothing and looks nothing up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backends/cpu/kernel_table.h"
#include "base/aligned_buffer.h"
#include "base/thread_pool.h"

namespace tcim_lite::cpu {

constexpr int64_t elem_bytes(Elem elem) { return elem == kF16 ? 2 : 4; }

// An activation seen as a matrix: the leading axes are rows, the rest columns. A view of a wider value has its stride.
struct Rows {
  uint32_t value = 0;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;     // elements between rows
  int64_t slot_rows = 0;  // rows per batch slot, T
  bool limited = false;   // rows at or beyond the live count need not be computed
};

// Device memory of a length, an int32 scalar input.
struct SlotLengths {
  uint32_t valid = 0;    // value id: tokens in the cache before this run
  uint32_t current = 0;  // value id: real tokens in this run
};

struct RunContext {
  const KernelTable& kernels;
  ThreadPool& pool;
  std::byte* const* values;  // [value id] storage; null for weights and for values a fusion removed
  int64_t live_rows;
  std::byte* shared_scratch;                // one step's own, 64-byte aligned
  std::span<AlignedBuffer> member_scratch;  // one per pool member

  std::byte* at(uint32_t value) const { return values[value]; }
  int64_t rows_of(const Rows& x) const { return x.limited && live_rows < x.rows ? live_rows : x.rows; }
  int64_t length(uint32_t value) const { return *reinterpret_cast<const int32_t*>(values[value]); }
  std::byte* member(int index) const { return member_scratch[index].data(); }
};

class Step {
 public:
  virtual ~Step() = default;
  virtual void run(const RunContext& context) const = 0;
  // Scratch this step needs: one block for the step, one for each pool member.
  virtual int64_t shared_bytes() const { return 0; }
  virtual int64_t member_bytes() const { return 0; }
};

// Runs body(row_begin, row_end, member) over [0, rows): in one go when there are few rows, else over the pool.
template <typename Body>
void for_rows(const RunContext& context, int64_t rows, const Body& body) {
  constexpr int64_t kTile = 8;
  if (rows <= kTile) {
    body(int64_t{0}, rows, 0);
    return;
  }
  context.pool.parallel_for((rows + kTile - 1) / kTile, [&](int64_t tile, int member) {
    const int64_t begin = tile * kTile;
    body(begin, begin + kTile < rows ? begin + kTile : rows, member);
  });
}

}  // namespace tcim_lite::cpu
