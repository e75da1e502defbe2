#include "backends/cpu/ops/linear.h"

#include <algorithm>

#include "backends/cpu/dispatch.h"

namespace tcim_lite::cpu {
namespace {

constexpr int64_t kMaxRowTile = 256;    // rows whose accumulators a member holds at a time, at most
constexpr int64_t kMaxChunkBlocks = 8;  // blocks of 16 outputs in a task: 32 KiB of accumulators with 64 rows
constexpr int64_t kFloatRowTile = 64;
constexpr int64_t kFewRowsChunkBytes = 64 << 10;

int64_t align64(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// Where the prepared input lies in the shared scratch.
struct Prepared {
  std::byte* base;
  int64_t rows, inputs;

  int64_t groups() const { return inputs / kGroup; }
  int8_t* codes() const { return reinterpret_cast<int8_t*>(base); }
  float* scales() const { return reinterpret_cast<float*>(base + align64(rows * inputs)); }
  int32_t* sums() const {
    return reinterpret_cast<int32_t*>(base + align64(rows * inputs) + align64(rows * groups() * 4));
  }
  float* widened() const { return reinterpret_cast<float*>(base); }
};

}  // namespace

int64_t LinearStep::shared_bytes() const {
  if (!quantized()) return x.rows * inputs * 4;
  return align64(x.rows * inputs) + 2 * align64(x.rows * (inputs / kGroup) * 4);
}

int64_t LinearStep::member_bytes() const {
  // Accumulators of one task, or one tile of normalised rows, whichever phase is running.
  const int64_t few_rows_blocks =
      std::max<int64_t>(kMaxChunkBlocks, kFewRowsChunkBytes / block_bytes(format, inputs) + 2);
  const int64_t accumulators =
      std::max(std::min(kMaxRowTile, x.rows) * kMaxChunkBlocks, kFewRows * few_rows_blocks) * kBlockOutputs * 4;
  return std::max(accumulators, inputs * elem_bytes(elem));
}

void LinearStep::run(const RunContext& context) const {
  const int64_t rows = context.rows_of(x);
  prepare(context, rows);

  const int64_t blocks = (outputs + kBlockOutputs - 1) / kBlockOutputs;
  const int64_t row_tile = std::min(kMaxRowTile, quantized() ? context.kernels.many_rows : kFloatRowTile);
  const int64_t share = std::max<int64_t>(1, blocks / (4 * context.pool.size()));
  int64_t chunk = rows <= kFewRows ? kFewRowsChunkBytes / block_bytes(format, inputs) : kMaxChunkBlocks;
  chunk = std::max<int64_t>(1, std::min(chunk, share));
  if (epilogue == Epilogue::SiluMul) chunk += chunk % 2;  // a gate block and its up block stay together

  context.pool.parallel_runs((blocks + chunk - 1) / chunk, [&](int64_t task, int member) {
    const int64_t block = task * chunk;
    const int64_t count = std::min(chunk, blocks - block);
    float* acc = reinterpret_cast<float*>(context.member(member));
    for (int64_t row = 0; row < rows; row += row_tile) {
      const int64_t tile = std::min(row_tile, rows - row);
      multiply(context, row, tile, block, count, acc);
      finish(context, row, tile, block, count, acc);
    }
  });
}

void LinearStep::prepare(const RunContext& context, int64_t rows) const {
  const KernelTable& kernels = context.kernels;
  const Prepared prepared{context.shared_scratch, x.rows, inputs};
  for_rows(context, rows, [&](int64_t begin, int64_t end, int member) {
    for (int64_t row = begin; row < end; ++row) {
      const void* source = context.at(x.value) + row * x.stride * elem_bytes(elem);
      if (norm_weight != nullptr) {
        std::byte* normalised = context.member(member);
        kernels.rms_norm[elem]({source, normalised, norm_weight, 1, inputs, inputs, inputs, norm_epsilon});
        source = normalised;
      }
      if (quantized()) {
        const int64_t groups = prepared.groups();
        const auto quantize = hidden_exponent ? kernels.quantize_hidden : kernels.quantize[elem];
        quantize({source, prepared.codes() + row * inputs, prepared.scales() + row * groups,
                  prepared.sums() + row * groups, 1, groups, inputs});
      } else {
        kernels.widen[elem]({source, prepared.widened() + row * inputs, 1, inputs, inputs, inputs, 1.0f});
      }
    }
  });
}

void LinearStep::multiply(const RunContext& context, int64_t row, int64_t rows, int64_t block, int64_t blocks,
                          float* acc) const {
  const KernelTable& kernels = context.kernels;
  const Prepared prepared{context.shared_scratch, x.rows, inputs};
  const int64_t stride = block_bytes(format, inputs);
  const uint8_t* first = weights + block * stride;
  const int64_t acc_stride = blocks * kBlockOutputs;
  if (quantized()) {
    const int64_t groups = prepared.groups();
    const LinearQuantArgs args{first,
                               stride,
                               blocks,
                               groups,
                               prepared.codes() + row * inputs,
                               prepared.scales() + row * groups,
                               prepared.sums() + row * groups,
                               rows,
                               acc,
                               acc_stride};
    return linear_kernel(kernels, format, rows)(args);
  }
  kernels.linear[int(format)].floats(
      {first, stride, blocks, inputs, prepared.widened() + row * inputs, inputs, rows, acc, acc_stride});
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
