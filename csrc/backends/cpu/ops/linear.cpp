#include "backends/cpu/ops/linear.h"

#include <algorithm>

#include "backends/cpu/ops/linear_rows.h"
#include "base/prefetch.h"

namespace tcim_lite::cpu {
namespace {

constexpr int64_t kNormRows = 4;  // of a call: rms_norm makes their sums side by side

}  // namespace

int64_t LinearStep::shared_bytes() const { return prepared_bytes(*this, x.rows); }

// Of one task, or normalised rows, whichever phase is running.
int64_t LinearStep::member_bytes() const {
  return std::max(task_bytes(*this, x.rows), std::min(kNormRows, x.rows) * inputs * elem_bytes(elem));
}

void LinearStep::run(const RunContext& context) const {
  const int64_t rows = context.rows_of(x);
  const PreparedRows prepared{context.shared_scratch, x.rows, inputs, arranged_kernels(context.kernels, *this, rows)};
  prepare(context, prepared, rows);

  const int64_t blocks = (outputs + kBlockOutputs - 1) / kBlockOutputs, stride = block_bytes(format, inputs);
  const int64_t row_tile = row_tile_of(context, *this), tiles = (rows + row_tile - 1) / row_tile;
  const int64_t chunk = chunk_of(context, *this, rows, blocks);
  context.pool.parallel_runs((blocks + chunk - 1) / chunk, [&](int64_t task, int member) {
    const int64_t block = task * chunk;
    const int64_t count = std::min(chunk, blocks - block);
    if (rows <= kFewRows) fetch_targets(context, rows, block, count);
    for (int64_t index = 0; index < tiles; ++index) {
      const int64_t row = rows * index / tiles, tile = rows * (index + 1) / tiles - row;
      const float* acc = multiply_rows(context, *this, prepared, weights + block * stride, row, tile, count, member);
      finish(context, row, tile, block, count, acc);
    }
  });
}

void LinearStep::prepare(const RunContext& context, const PreparedRows& prepared, int64_t rows) const {
  for_rows(context, rows, [&](int64_t begin, int64_t end, int member) {
    for (int64_t first = begin; first < end; first += kNormRows) {
      const int64_t count = std::min(kNormRows, end - first), size = elem_bytes(elem);
      const std::byte* source = context.at(x.value) + first * x.stride * size;
      int64_t stride = x.stride;
      if (norm_weight != nullptr) {
        std::byte* normalised = context.member(member);
        context.kernels.rms_norm[elem]({source, normalised, norm_weight, count, inputs, stride, inputs, norm_epsilon});
        source = normalised;
        stride = inputs;
      }
      for (int64_t row = 0; row < count; ++row)
        prepare_row(context, *this, source + row * stride * size, prepared, first + row);
    }
  });
}

// The lines that a task of few rows writes. Memory or another core has them, and the next task is taken by an atomic
// operation, which waits until they have come (benchmarks/notes/log/batch-and-calls.md).
void LinearStep::fetch_targets(const RunContext& context, int64_t rows, int64_t block, int64_t blocks) const {
  const int64_t each = epilogue == Epilogue::SiluMul ? kBlockOutputs / 2 : kBlockOutputs, size = elem_bytes(elem);
  for (int64_t row = 0; row < rows; ++row)
    prefetch_for_write(context.at(y.value) + (row * y.stride + block * each) * size, blocks * each * size);
}

void LinearStep::finish(const RunContext& context, int64_t row, int64_t rows, int64_t block, int64_t blocks,
                        const float* acc) const {
  const int64_t column = block * kBlockOutputs;
  const int64_t columns = std::min(blocks * kBlockOutputs, outputs - column);
  const int64_t acc_stride = blocks * kBlockOutputs;
  const int64_t size = elem_bytes(elem);
  const float* chunk_bias = bias == nullptr ? nullptr : bias + column;
  if (epilogue == Epilogue::SiluMul) {
    std::byte* out = context.at(y.value) + (row * y.stride + column / 2) * size;
    context.kernels.silu_mul_store[elem]({acc, chunk_bias, out, rows, columns / 2, acc_stride, y.stride});
    return;
  }
  std::byte* out = context.at(y.value) + (row * y.stride + column) * size;
  const std::byte* add = nullptr;
  if (epilogue == Epilogue::AddResidual) add = context.at(residual.value) + (row * residual.stride + column) * size;
  context.kernels.store[elem]({acc, chunk_bias, add, out, rows, columns, acc_stride, residual.stride, y.stride});
}

}  // namespace tcim_lite::cpu
