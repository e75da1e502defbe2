#include "backends/cpu/ops/linear_rows.h"

#include <algorithm>
#include <cstring>

#include "backends/cpu/dispatch.h"

namespace tcim_lite::cpu {
namespace {

constexpr int64_t kMaxRowTile = 256;    // rows whose accumulators a member holds at a time, at most
constexpr int64_t kMaxChunkBlocks = 8;  // blocks of 16 outputs in a task: 32 KiB of accumulators with 64 rows
constexpr int64_t kFloatRowTile = 64;
// Of a task of few rows: less, and what each task costs counts (benchmarks/notes/log/batch-and-calls.md). Blocks: 32
// KiB of accumulators with eight rows.
constexpr int64_t kFewRowsChunkBytes = 128 << 10, kFewRowsChunkBlocks = 64;

// Even for 4-bit weights, of which kernels may multiply two blocks at a time.
int64_t few_rows_chunk(const LinearSpec& spec) {
  const int64_t chunk = std::min(kFewRowsChunkBytes / block_bytes(spec.format, spec.inputs), kFewRowsChunkBlocks);
  return spec.format == WeightFormat::LinearW4 ? std::max<int64_t>(2, chunk / 2 * 2) : std::max<int64_t>(1, chunk);
}

}  // namespace

int64_t prepared_bytes(const LinearSpec& spec, int64_t rows) {
  if (!spec.quantized()) return rows * spec.inputs * 4;
  const int64_t groups = spec.inputs / kGroup;
  const int64_t codes = PreparedRows::align64(rows * spec.inputs) + 2 * PreparedRows::align64(rows * groups * 4);
  const ArrangedKernels* arranged = arranged_kernels(kernels(), spec, rows);
  return codes + (arranged == nullptr ? 0 : rows * arranged->row_bytes(groups));
}

const ArrangedKernels* arranged_kernels(const KernelTable& kernels, const LinearSpec& spec, int64_t rows) {
  const ArrangedKernels& arranged = kernels.linear[int(spec.format)].arranged;
  return spec.quantized() && arranged.arrange != nullptr && rows >= arranged.from ? &arranged : nullptr;
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
    if (prepared.arranged_for == nullptr) return;
    prepared.arranged_for->arrange(
        {prepared.codes() + row * inputs, prepared.scales() + row * groups, prepared.arranged(row), 1, groups});
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
  if (prepared.arranged_for != nullptr) copy(prepared.arranged(0), prepared.arranged_for->row_bytes(prepared.groups()));
}

float* multiply_rows(const RunContext& context, const LinearSpec& spec, const PreparedRows& prepared,
                     const uint8_t* weights, int64_t row, int64_t rows, int64_t blocks, int member) {
  const KernelTable& kernels = context.kernels;
  const LinearKernels& linear = kernels.linear[int(spec.format)];
  std::byte* const scratch = context.member(member);
  auto* const acc = reinterpret_cast<float*>(scratch + linear.arranged.scratch_bytes);
  const int64_t inputs = spec.inputs, stride = block_bytes(spec.format, inputs), acc_stride = blocks * kBlockOutputs;
  if (spec.quantized()) {
    const int64_t groups = prepared.groups();
    const bool as_arranged = prepared.arranged_for != nullptr && rows >= linear.arranged.from;
    const LinearQuantArgs args{weights,
                               stride,
                               blocks,
                               groups,
                               prepared.codes() + row * inputs,
                               prepared.scales() + row * groups,
                               prepared.sums() + row * groups,
                               rows,
                               acc,
                               acc_stride,
                               as_arranged ? prepared.arranged(row) : nullptr,
                               scratch};
    const LinearQuantKernel kernel = as_arranged ? linear.arranged.multiply : linear_kernel(kernels, spec.format, rows);
    kernel(args);
  } else {
    linear.floats({weights, stride, blocks, inputs, prepared.widened() + row * inputs, inputs, rows, acc, acc_stride});
  }
  return acc;
}

int64_t row_tile_of(const RunContext& context, const LinearSpec& spec) {
  if (spec.format == WeightFormat::LinearF16) return kMaxRowTile;  // which share widened weights
  return std::min(kMaxRowTile, spec.quantized() ? context.kernels.many_rows : kFloatRowTile);
}

int64_t chunk_of(const RunContext& context, const LinearSpec& spec, int64_t rows, int64_t blocks) {
  const int64_t share = std::max<int64_t>(1, blocks / (4 * context.pool.size()));
  int64_t chunk = rows <= kFewRows ? few_rows_chunk(spec) : kMaxChunkBlocks;
  chunk = std::max<int64_t>(1, std::min(chunk, share));
  if (spec.epilogue == LinearSpec::Epilogue::SiluMul) chunk += chunk % 2;  // a gate block and its up block together
  return chunk;
}

int64_t task_bytes(const LinearSpec& spec, int64_t rows) {
  const int64_t few_rows_blocks = few_rows_chunk(spec) + 1;  // of gate and up an even number
  const int64_t sums = std::max(std::min(kMaxRowTile, rows) * kMaxChunkBlocks, kFewRows * few_rows_blocks);
  return kernels().linear[int(spec.format)].arranged.scratch_bytes + sums * kBlockOutputs * 4;
}

}  // namespace tcim_lite::cpu
