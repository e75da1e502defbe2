#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>

#include "backends/cpu/dispatch.h"
#include "base/machine_limits.h"
#include "base/thread_pool.h"
#include "graph/weight_format.h"
#include "kernel_bench.h"

namespace tcim_lite::bench {
namespace {

using namespace tcim_lite::cpu;

// A prompt's rows of a model 1,024 wide: 512 KiB in fp16, as much as a second cache holds beside the output.
constexpr int64_t kRows = 128, kCols = 1024, kHeadDim = 128;

AlignedBuffer floats(int64_t count) {
  AlignedBuffer buffer(uint64_t(count) * 4);
  for (int64_t i = 0; i < count; ++i) reinterpret_cast<float*>(buffer.data())[i] = float(i % 61 - 30) / 16;
  return buffer;
}

AlignedBuffer halves(int64_t count) {
  AlignedBuffer buffer(uint64_t(count) * 2);
  for (int64_t i = 0; i < count; ++i) reinterpret_cast<uint16_t*>(buffer.data())[i] = uint16_t(0x2c00 + i % 997);
  return buffer;
}

const float* as_floats(const AlignedBuffer& buffer) { return reinterpret_cast<const float*>(buffer.data()); }
float* as_floats(AlignedBuffer& buffer) { return reinterpret_cast<float*>(buffer.data()); }

void print_row(const char* name, double bytes, double operations, const std::function<void()>& run, double roof) {
  const double seconds = best_seconds(run, 0.1);
  std::printf("%-18s rows %ld x %ld  threads 1  %6.1f GB/s  %6.1f GFLOP/s  %3.0f %% of %.1f second cache\n", name,
              long(kRows), long(kCols), bytes / seconds / 1e9, operations / seconds / 1e9, 100 * bytes / seconds / roof,
              roof / 1e9);
}

}  // namespace

double best_seconds(const std::function<void()>& run, double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto since = [](Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); };
  double best = 1e9;
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < 3 || since(start) < seconds; ++i) {
    const Clock::time_point begin = Clock::now();
    run();
    best = std::min(best, since(begin));
  }
  return best;
}

// Bytes are those read and written, operations those of the formula in kernel_table.h; exp counts as one.
void bench_rows() {
  const KernelTable& table = kernels();
  const double roof = read_bandwidth(1, size_t{512} << 10), count = double(kRows * kCols);
  const AlignedBuffer x = halves(kRows * kCols), residual = halves(kRows * kCols), weight = floats(2 * kCols),
                      acc = floats(2 * kRows * kCols), angles = floats(kHeadDim);
  AlignedBuffer y(uint64_t(kRows * kCols) * 4), codes(uint64_t(kRows * kCols)), scales(uint64_t(kRows * kCols / 16)),
      sums(uint64_t(kRows * kCols / 16));

  print_row(
      "norm", 4 * count, 4 * count,
      [&] { table.rms_norm[kF16]({x.data(), y.data(), as_floats(weight), kRows, kCols, kCols, kCols, 1e-6F}); }, roof);
  print_row(
      "quantise", 3 * count, 3 * count,
      [&] {
        table.quantize[kF16]({x.data(), reinterpret_cast<int8_t*>(codes.data()), as_floats(scales),
                              reinterpret_cast<int32_t*>(sums.data()), kRows, kCols / kGroup, kCols});
      },
      roof);
  print_row(
      "store", 6 * count, count,
      [&] { table.store[kF16]({as_floats(acc), nullptr, nullptr, y.data(), kRows, kCols, kCols, kCols, kCols}); },
      roof);
  print_row(
      "store + residual", 8 * count, count,
      [&] {
        table.store[kF16]({as_floats(acc), nullptr, residual.data(), y.data(), kRows, kCols, kCols, kCols, kCols});
      },
      roof);
  print_row(
      "silu * up, store", 10 * count, 5 * count,
      [&] { table.silu_mul_store[kF16]({as_floats(acc), nullptr, y.data(), kRows, kCols, 2 * kCols, kCols}); }, roof);
  print_row(
      "silu * up", 3 * count, 2.5 * count,
      [&] { table.silu_mul[kF16]({x.data(), y.data(), kRows, kCols / 2, kCols, kCols / 2}); }, roof);
  print_row(
      "add", 6 * count, count,
      [&] { table.elementwise[kAdd][kF16]({x.data(), residual.data(), y.data(), kRows, kCols, kCols, kCols, kCols}); },
      roof);
  print_row(
      "rope", 4 * count, 3 * count,
      [&] {
        for (int64_t row = 0; row < kRows; ++row) {
          table.rope[kF16]({x.data() + row * kCols * 2, y.data() + row * kCols * 2, as_floats(angles),
                            as_floats(angles) + kHeadDim / 2, kCols / kHeadDim, kHeadDim, kHeadDim, kHeadDim});
        }
      },
      roof);
  print_row(
      "widen (q)", 6 * count, count,
      [&] { table.widen[kF16]({x.data(), as_floats(y), kRows, kCols, kCols, kCols, 0.25F}); }, roof);
  print_row(
      "narrow (cache)", 6 * count, 0,
      [&] { table.narrow[kF16]({as_floats(acc), y.data(), kRows, kCols, kCols, kCols}); }, roof);
  print_row("all finite", 2 * count, 0, [&] { table.all_finite[kF16]({x.data(), kRows, kCols, kCols}); }, roof);

  // kRows heads of attention, a row each, as one step of decode merges its blocks.
  AlignedBuffer running = floats(kRows * kCols);
  const AlignedBuffer m = floats(kRows * kCols), l = floats(kRows * kCols);
  AlignedBuffer running_m = floats(kRows * kCols), running_l = floats(kRows * kCols);
  const int64_t heads = kRows * kCols / kHeadDim;
  print_row(
      "attention merge", 12 * count, 2 * count,
      [&] {
        table.attention_merge({as_floats(running_m), as_floats(running_l), as_floats(running), as_floats(m),
                               as_floats(l), as_floats(acc), heads, kHeadDim});
      },
      roof);
  print_row(
      "attention finish", 6 * count, count,
      [&] {
        table.attention_finish[kF16](
            {as_floats(weight), as_floats(acc), y.data(), kCols / kHeadDim, kHeadDim, kHeadDim});
        for (int64_t row = 1; row < kRows; ++row) {
          table.attention_finish[kF16]({as_floats(weight), as_floats(acc) + row * kCols, y.data() + row * kCols * 2,
                                        kCols / kHeadDim, kHeadDim, kHeadDim});
        }
      },
      roof);
}

void bench_float_linears() {
  const KernelTable& table = kernels();
  constexpr int64_t kInputs = 1024, kManyRows = 64;
  const AlignedBuffer x = floats(kManyRows * kInputs);
  for (const WeightFormat format : {WeightFormat::LinearF16, WeightFormat::LinearF32}) {
    const auto kernel = table.linear[int(format)].floats;
    for (const int64_t rows : {int64_t{1}, kManyRows}) {
      // One row streams 192 MiB, which no second cache holds; many rows take the arithmetic of 4 MiB.
      const int64_t stride = block_bytes(format, kInputs), blocks = (rows == 1 ? 192 << 20 : 4 << 20) / stride;
      AlignedBuffer weights = halves(blocks * stride / 2);
      const int threads = ThreadPool::instance().size();
      const int64_t chunk = 8, tasks = blocks / chunk;
      std::vector<AlignedBuffer> acc;
      for (int i = 0; i < threads; ++i) acc.emplace_back(uint64_t(kManyRows * chunk * 16) * 4);
      double roof = rows == 1 ? read_bandwidth(threads) : fp32_peak(threads);
      const double seconds = best_seconds([&] {
        ThreadPool::instance().parallel_runs(tasks, [&](int64_t task, int member) {
          kernel({reinterpret_cast<const uint8_t*>(weights.data()) + task * chunk * stride, stride, chunk, kInputs,
                  as_floats(x), kInputs, rows, as_floats(acc[size_t(member)]), chunk * 16});
        });
      });
      roof = std::max(roof, rows == 1 ? read_bandwidth(threads) : fp32_peak(threads));
      const double bytes = double(tasks * chunk * stride);
      const double operations = 2.0 * double(rows * tasks * chunk * 16 * kInputs);
      const double reached = (rows == 1 ? bytes : operations) / seconds;
      std::printf("%-10s rows %2ld  K %4ld  threads %d  %6.1f GB/s  %7.1f GFLOP/s  %3.0f %% of %.1f %s\n",
                  name_of(format), long(rows), long(kInputs), threads, bytes / seconds / 1e9,
                  operations / seconds / 1e9, 100 * reached / roof, roof / 1e9, rows == 1 ? "read" : "fp32 peak");
    }
  }
}

}  // namespace tcim_lite::bench
