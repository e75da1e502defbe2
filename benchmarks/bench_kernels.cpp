// Kernels against the roofs of this machine: decode (one row) against the read bandwidth, prefill against the int8
// peak, attention against the fp32 peak, rows of activations against the second cache, at the shapes of Qwen3-0.6B.
// TCIM_LITE_ISA chooses the kernels. The machine is often shared: every number is the best of several tries and the
// roofs are measured again next to what is compared with them.
#include <algorithm>
#include <cstdio>
#include <vector>

#include "backends/cpu/dispatch.h"
#include "base/aligned_buffer.h"
#include "base/machine_limits.h"
#include "base/thread_pool.h"
#include "graph/weight_format.h"
#include "kernel_bench.h"

using namespace tcim_lite;
using namespace tcim_lite::cpu;
using bench::best_seconds;

namespace {

// Random codes, scales of a usual size.
struct QuantLinear {
  WeightFormat format;
  int64_t blocks, groups, stride;
  AlignedBuffer weights;

  QuantLinear(WeightFormat format_, int64_t outputs, int64_t inputs)
      : format(format_),
        blocks(outputs / 16),
        groups(inputs / kGroup),
        stride(block_bytes(format, inputs)),
        weights(uint64_t(stride * blocks)) {
    uint32_t state = 1;
    for (uint64_t i = 0; i < weights.bytes(); ++i)
      weights.data()[i] = std::byte((state = state * 1664525 + 1013904223) >> 24);
    for (int64_t block = 0; block < blocks; ++block) {
      for (int64_t i = 0; i < groups * 16; ++i) {
        std::byte* scales = weights.data() + block * stride + scales_offset(format, inputs, i / 16);
        if (format == WeightFormat::LinearW4)
          reinterpret_cast<uint16_t*>(scales)[i % 16] = 0x2000;
        else
          scales[i % 16] = std::byte(0xf8);
      }
    }
  }
};

struct Activations {
  AlignedBuffer codes, scales, sums;
  Activations(int64_t rows, int64_t inputs)
      : codes(rows * inputs), scales(rows * inputs / 16), sums(rows * inputs / 16) {
    for (int64_t i = 0; i < rows * inputs; ++i) codes.data()[i] = std::byte(int8_t(i * 37 % 255 - 127));
    for (int64_t i = 0; i < rows * inputs / kGroup; ++i) reinterpret_cast<float*>(scales.data())[i] = 0.25f;
  }
};

// A member's memory.
struct Member {
  AlignedBuffer acc{256 * 256 * 4}, scratch{128 << 10};
};

// Blocks from `block` on, rows from `row` on.
LinearQuantArgs part_of(const QuantLinear& w, const Activations& x, int64_t block, int64_t blocks, int64_t row,
                        int64_t rows, const Member& member) {
  return {reinterpret_cast<const uint8_t*>(w.weights.data()) + block * w.stride,
          w.stride,
          blocks,
          w.groups,
          reinterpret_cast<const int8_t*>(x.codes.data()) + row * w.groups * kGroup,
          reinterpret_cast<const float*>(x.scales.data()) + row * w.groups,
          reinterpret_cast<const int32_t*>(x.sums.data()) + row * w.groups,
          rows,
          reinterpret_cast<float*>(member.acc.data()),
          blocks * 16};
}

// Tasks of `chunk` blocks by as many rows as LinearStep takes. threads 1 stays on the calling thread.
void run_linear(const QuantLinear& w, const Activations& x, int64_t rows, int64_t chunk, bool threads,
                const std::vector<Member>& members) {
  const int64_t tile = std::min(kernels().many_rows, rows);
  const bench::LinearBench linear(kernels(), w.format, part_of(w, x, 0, 1, 0, rows, members[0]), tile);
  const auto task = [&](int64_t index, int member) {
    const int64_t block = index * chunk, count = std::min(chunk, w.blocks - block);
    for (int64_t row = 0; row < rows; row += tile) {
      const Member& own = members[size_t(member)];
      linear.run(part_of(w, x, block, count, row, std::min(tile, rows - row), own), row, own.scratch);
    }
  };
  const int64_t tasks = (w.blocks + chunk - 1) / chunk;
  if (threads) {
    ThreadPool::instance().parallel_runs(tasks, task);
  } else {
    for (int64_t index = 0; index < tasks; ++index) task(index, 0);
  }
}

void bench_decode(WeightFormat format, const std::vector<Member>& members) {
  // 192 MiB and more: no cache holds it.
  const int64_t inputs = 1024, outputs = format == WeightFormat::LinearW4 ? 393216 : 196608;
  const QuantLinear w(format, outputs, inputs);
  const Activations x(8, inputs);
  const int64_t chunk = (64 << 10) / w.stride;
  for (const int64_t rows : {1, 2, 4, 5, 8}) {
    for (const bool threads : {false, true}) {
      const int count = threads ? ThreadPool::instance().size() : 1;
      double roof = read_bandwidth(count);
      const double seconds = best_seconds([&] { run_linear(w, x, rows, chunk, threads, members); });
      roof = std::max(roof, read_bandwidth(count));
      const double rate = double(w.weights.bytes()) / seconds;
      std::printf("%-10s rows %2ld  K %4ld  threads %d  %6.1f GB/s  %3.0f %% of %.1f read\n", name_of(format),
                  long(rows), long(inputs), count, rate / 1e9, 100 * rate / roof, roof / 1e9);
    }
  }
}

void bench_prefill(WeightFormat format, int64_t rows, int64_t outputs, int64_t inputs,
                   const std::vector<Member>& members) {
  const QuantLinear w(format, outputs, inputs);
  const Activations x(rows, inputs);
  for (const bool threads : {false, true}) {
    const int count = threads ? ThreadPool::instance().size() : 1;
    double roof = int8_peak(count);
    const double seconds = best_seconds([&] { run_linear(w, x, rows, 8, threads, members); });
    roof = std::max(roof, int8_peak(count));
    const double rate = 2.0 * double(rows) * double(outputs) * double(inputs) / seconds;
    std::printf("%-10s rows %3ld  %5ld x %4ld  threads %d  %7.1f GOP/s  %3.0f %% of %.0f peak\n", name_of(format),
                long(rows), long(outputs), long(inputs), count, rate / 1e9, 100 * rate / roof, roof / 1e9);
  }
}

// One KV head of dimension 128 in fp16: `rows` query rows share 256 keys.
void bench_attention() {
  const int64_t dim = 128, keys = kAttentionBlock, heads = 512;  // 512 blocks: 64 MiB of K and V
  AlignedBuffer k(heads * keys * dim * 2), v(heads * keys * dim * 2), q(32 * dim * 4), o(32 * dim * 4), ml(64 * 4),
      scores(32 * keys * 4);
  for (uint64_t i = 0; i < k.bytes() / 2; ++i) {
    reinterpret_cast<uint16_t*>(k.data())[i] = uint16_t(0x2800 + i % 997);
    reinterpret_cast<uint16_t*>(v.data())[i] = uint16_t(0x2800 + i % 991);
  }
  std::vector<int32_t> visible(32, int32_t(keys));
  float* m = reinterpret_cast<float*>(ml.data());
  const double peak = fp32_peak(1);
  for (const int64_t rows : {1, 2, 4, 32}) {
    const double seconds = best_seconds([&] {
      for (int64_t head = 0; head < heads; ++head) {
        kernels().attention_block[kF16]({reinterpret_cast<const float*>(q.data()), k.data() + head * keys * dim * 2,
                                         v.data() + head * keys * dim * 2, visible.data(), m, m + 32,
                                         reinterpret_cast<float*>(o.data()), reinterpret_cast<float*>(scores.data()),
                                         rows, dim});
      }
    });
    const double flops = 4.0 * double(rows * dim * keys * heads);
    std::printf(
        "attention  rows %2ld  dim 128  keys 256  threads 1  %6.1f GFLOP/s  %3.0f %% of %.0f fp32 peak  %6.1f GB/s of "
        "K and V\n",
        long(rows), flops / seconds / 1e9, 100 * flops / seconds / peak, peak / 1e9,
        double(k.bytes() + v.bytes()) / seconds / 1e9);
  }
}

}  // namespace

int main() {
  const int threads = ThreadPool::instance().size();
  std::printf("kernels %s, threads %d, core to core %.0f ns\n", kernels().isa, threads,
              threads > 1 ? core_to_core_ns() : 0.0);
  const std::vector<Member> members(static_cast<size_t>(threads));
  for (const WeightFormat format : {WeightFormat::LinearW4, WeightFormat::LinearW8}) bench_decode(format, members);
  for (const WeightFormat format : {WeightFormat::LinearW4, WeightFormat::LinearW8}) {
    bench_prefill(format, 256, 4096, 1024, members);  // q, k, v
    bench_prefill(format, 256, 6144, 1024, members);  // gate and up
    bench_prefill(format, 256, 1024, 3072, members);  // down
    bench_prefill(format, 64, 6144, 1024, members);
  }
  bench_attention();
  bench::bench_float_linears();
  bench::bench_rows();
}
