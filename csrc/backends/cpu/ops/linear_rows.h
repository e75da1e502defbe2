// What Linear and MoELinear share: input rows made ready for the kernels, and their product with blocks of weights.
#pragma once

#include <algorithm>

#include "backends/cpu/plan.h"
#include "graph/weight_format.h"

namespace tcim_lite::cpu {

// Rows ready for the kernels: codes with scales and sums of a quantised Linear, else fp32. In a block of scratch.
struct PreparedRows {
  std::byte* base;
  int64_t rows, inputs;
  const ArrangedKernels* arranged_for = nullptr;  // null: rows are not arranged

  int64_t groups() const { return inputs / kGroup; }
  int8_t* codes() const { return reinterpret_cast<int8_t*>(base); }
  float* scales() const { return reinterpret_cast<float*>(base + align64(rows * inputs)); }
  int32_t* sums() const {
    return reinterpret_cast<int32_t*>(base + align64(rows * inputs) + align64(rows * groups() * 4));
  }
  std::byte* arranged(int64_t row) const {
    return base + align64(rows * inputs) + 2 * align64(rows * groups() * 4) + row * arranged_for->row_bytes(groups());
  }
  float* widened() const { return reinterpret_cast<float*>(base); }

  static int64_t align64(int64_t bytes) { return (bytes + 63) / 64 * 64; }
};

// Bytes of so many prepared rows.
int64_t prepared_bytes(const LinearSpec& spec, int64_t rows);
// The kernels for which rows are worth arranging where so many are multiplied by the same weights, or null.
const ArrangedKernels* arranged_kernels(const KernelTable& kernels, const LinearSpec& spec, int64_t rows);
// Makes row `row` of `source`, a row of T.
void prepare_row(const RunContext& context, const LinearSpec& spec, const void* source, const PreparedRows& prepared,
                 int64_t row);
// Copies row `from` to row `to`.
void copy_row(const LinearSpec& spec, const PreparedRows& prepared, int64_t from, int64_t to);
// [rows, 16 * blocks] in the member's accumulators, of rows from `row` on and blocks of 16 outputs from `weights` on.
float* multiply_rows(const RunContext& context, const LinearSpec& spec, const PreparedRows& prepared,
                     const uint8_t* weights, int64_t row, int64_t rows, int64_t blocks, int member);

// How the work is cut where `rows` rows are multiplied by `blocks` blocks in all: the number of rows whose accumulators
// a member holds at a time, and the number of blocks of outputs per task.
int64_t row_tile_of(const RunContext& context, const LinearSpec& spec);
int64_t chunk_of(const RunContext& context, const LinearSpec& spec, int64_t rows, int64_t blocks);
// What a member needs for tasks of up to `rows` rows.
int64_t task_bytes(const LinearSpec& spec, int64_t rows);

}  // namespace tcim_lite::cpu
