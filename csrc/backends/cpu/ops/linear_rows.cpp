#include "backends/cpu/ops/linear_rows.h"

#include <algorithm>
#include <cstring>

#include "backends/cpu/dispatch.h"

namespace tcim_lite::cpu {
namespace {

constexpr int64_t kMaxRowTile = 256;    // rows whose accumulators a member holds at a time, at most
constexpr int64_t kMaxChunkBlocks = 8;  // blocks of 16 outputs in a task: 32 KiB of accumulators with 64 rows
constexpr int64_t kFloatRowTile = 64;
constexpr int64_t kFewRowsChunkBytes = 64 << 10;

}  // namespace

int64_t prepared_bytes(const LinearSpec& spec, int64_t rows) {
  if (!spec.quantized()) return rows * spec.inputs * 4;
  return PreparedRows::align64(rows * spec.inputs) + 2 * PreparedRows::align64(rows * (spec.inputs / kGroup) * 4);
}

void prepare_row(const RunContext& context, const LinearSpec& spec, const void* source, const PreparedRows& prepared,
                 int64_t row) {
  const KernelTable& kernels = context.kernels;
  const int64_t inputs = spec.inputs;
  if (spec.quantized()) {
    const int64_t groups = prepared.groups();
    const auto quantize = spec.hidden_exponent ? kernels.quantize_hidden : kernels.quantize[spec.elem];
    quantize({source, prepared.codes() + row * inputs, prepared.scales() + row * groups, prepared.sums() + row * groups,
              1, groups, inputs});
  } else {
    kernels.widen[spec.elem]({source, prepared.widened() + row * inputs, 1, inputs, inputs, inputs, 1.0f});
  }
}

void copy_row(const LinearSpec& spec, const PreparedRows& prepared, int64_t from, int64_t to) {
  const auto copy = [&](auto* rows, int64_t cols) {
    std::memcpy(rows + to * cols, rows + from * cols, size_t(cols) * sizeof(*rows));
  };
  if (!spec.quantized()) return copy(prepared.widened(), prepared.inputs);
  copy(prepared.codes(), prepared.inputs);
  copy(prepared.scales(), prepared.groups());
  copy(prepared.sums(), prepared.groups());
}

void multiply_rows(const RunContext& context, const LinearSpec& spec, const PreparedRows& prepared,
                   const uint8_t* weights, int64_t row, int64_t rows, int64_t blocks, float* acc) {
  const KernelTable& kernels = context.kernels;
  const int64_t inputs = spec.inputs, stride = block_bytes(spec.format, inputs), acc_stride = blocks * kBlockOutputs;
  if (spec.quantized()) {
    const int64_t groups = prepared.groups();
    const LinearQuantArgs args{weights,
                               stride,
                               blocks,
                               groups,
                               prepared.codes() + row * inputs,
                               prepared.scales() + row * groups,
                               prepared.sums() + row * groups,
                               rows,
                               acc,
                               acc_stride};
    return linear_kernel(kernels, spec.format, rows)(args);
  }
  kernels.linear[int(spec.format)].floats(
      {weights, stride, blocks, inputs, prepared.widened() + row * inputs, inputs, rows, acc, acc_stride});
}

int64_t row_tile_of(const RunContext& context, const LinearSpec& spec) {
  return std::min(kMaxRowTile, spec.quantized() ? context.kernels.many_rows : kFloatRowTile);
}

int64_t chunk_of(const RunContext& context, const LinearSpec& spec, int64_t rows, int64_t blocks) {
  const int64_t share = std::max<int64_t>(1, blocks / (4 * context.pool.size()));
  int64_t chunk = rows <= kFewRows ? kFewRowsChunkBytes / block_bytes(spec.format, spec.inputs) : kMaxChunkBlocks;
  chunk = std::max<int64_t>(1, std::min(chunk, share));
  if (spec.epilogue == LinearSpec::Epilogue::SiluMul) chunk += chunk % 2;  // a gate block and its up block together
  return chunk;
}

int64_t accumulator_bytes(const LinearSpec& spec, int64_t rows) {
  const int64_t few_rows_blocks =
      std::max<int64_t>(kMaxChunkBlocks, kFewRowsChunkBytes / block_bytes(spec.format, spec.inputs) + 2);
  return std::max(std::min(kMaxRowTile, rows) * kMaxChunkBlocks, kFewRows * few_rows_blocks) * kBlockOutputs * 4;
}

}  // namespace tcim_lite::cpu
