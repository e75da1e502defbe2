// Every kernel set of this machine beside the others, per clock cycle: multiply-adds of the Linear layers and of
// attention, from the second cache, so that no memory and no clock rate is in the figure. The sets take turns and each
// figure is the upper quartile of many tries in thread CPU time, which other load on the machine disturbs least.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "backends/cpu/dispatch.h"
#include "base/aligned_buffer.h"
#include "graph/weight_format.h"
#include "kernel_bench.h"

using namespace tcim_lite;
using namespace tcim_lite::cpu;

namespace {

double cpu_seconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

double seconds_of(const std::function<void()>& run) {
  const double begin = cpu_seconds();
  run();
  return cpu_seconds() - begin;
}

// A chain of additions, one per cycle.
double cycles_per_second() {
  double best = 1e9;
  constexpr int64_t kLinks = 80'000;
  for (int i = 0; i < 5; ++i) {
    best = std::min(best, seconds_of([] {
                      uint64_t x = 1;
                      for (int64_t link = 0; link < kLinks; link += 8) {
#if defined(__x86_64__)
                        asm volatile(
                            "add %0, %0\n add %0, %0\n add %0, %0\n add %0, %0\n"
                            "add %0, %0\n add %0, %0\n add %0, %0\n add %0, %0\n"
                            : "+r"(x));
#elif defined(__aarch64__)
                        asm volatile(
                            "add %0, %0, %0\n add %0, %0, %0\n add %0, %0, %0\n add %0, %0, %0\n"
                            "add %0, %0, %0\n add %0, %0, %0\n add %0, %0, %0\n add %0, %0, %0\n"
                            : "+r"(x));
#endif
                      }
                    }));
  }
  return double(kLinks) / best;
}

// run(table) for each set in turn; prints multiply-adds per cycle, and bytes of weights per cycle if there are any.
void compare(const std::string& what, double products, double bytes, const std::vector<KernelTable>& tables,
             const std::function<void(const KernelTable&)>& run) {
  std::vector<std::vector<double>> rates(tables.size());
  for (int round = 0; round < 400; ++round) {
    const double clock = cycles_per_second();
    for (size_t i = 0; i < tables.size(); ++i) {
      rates[i].push_back(products / (seconds_of([&] { run(tables[i]); }) * clock));
    }
  }
  std::printf("%-24s", what.c_str());
  for (size_t i = 0; i < tables.size(); ++i) {
    const auto quartile = rates[i].begin() + int64_t(rates[i].size() * 3 / 4);
    std::nth_element(rates[i].begin(), quartile, rates[i].end());
    std::printf("  %s %6.2f", tables[i].isa, *quartile);
    if (bytes > 0) std::printf(" (%4.1f B)", *quartile * bytes / products);
  }
  std::printf("\n");
}

void bench_linear(WeightFormat format, int64_t rows, const std::vector<KernelTable>& tables) {
  const int64_t inputs = 1024, blocks = 4, groups = inputs / kGroup, stride = block_bytes(format, inputs);
  AlignedBuffer weights(uint64_t(stride * blocks)), codes(rows * inputs), scales(rows * groups * 4),
      sums(rows * groups * 4), acc(rows * blocks * 64), scratch(128 << 10);
  for (uint64_t i = 0; i < weights.bytes(); ++i) weights.data()[i] = std::byte(i * 37 % 61);
  for (int64_t i = 0; i < rows * inputs; ++i) codes.data()[i] = std::byte(int8_t(i * 37 % 255 - 127));
  const LinearQuantArgs args{reinterpret_cast<const uint8_t*>(weights.data()),
                             stride,
                             blocks,
                             groups,
                             reinterpret_cast<const int8_t*>(codes.data()),
                             reinterpret_cast<const float*>(scales.data()),
                             reinterpret_cast<const int32_t*>(sums.data()),
                             rows,
                             reinterpret_cast<float*>(acc.data()),
                             blocks * 16};
  std::map<std::string_view, bench::LinearBench> linears;
  for (const KernelTable& table : tables) linears.try_emplace(table.isa, table, format, args, rows);
  compare(std::string(name_of(format)) + ", rows " + std::to_string(rows), double(rows * inputs * blocks * 16),
          double(weights.bytes()), tables,
          [&](const KernelTable& table) { linears.at(table.isa).run(args, 0, scratch); });
}

void bench_attention(int64_t rows, const std::vector<KernelTable>& tables) {
  constexpr int64_t dim = 128, keys = kAttentionBlock;
  AlignedBuffer k(keys * dim * 2), v(keys * dim * 2), q(rows * dim * 4), o(rows * dim * 4), ml(rows * 8),
      scores(rows * keys * 4);
  const std::vector<int32_t> visible(static_cast<size_t>(rows), int32_t{keys});
  float* m = reinterpret_cast<float*>(ml.data());
  const AttentionBlockArgs args{reinterpret_cast<const float*>(q.data()),
                                k.data(),
                                v.data(),
                                visible.data(),
                                m,
                                m + rows,
                                reinterpret_cast<float*>(o.data()),
                                reinterpret_cast<float*>(scores.data()),
                                rows,
                                dim};
  compare("attention, rows " + std::to_string(rows), 2.0 * double(rows * dim * keys), 0, tables,
          [&](const KernelTable& table) { table.attention_block[kF16](args); });
}

}  // namespace

int main() {
  std::vector<KernelTable> tables;
  for (const std::string& isa : available_isas()) {
    if (isa != "ref") tables.push_back(make_table(isa));
  }
  std::printf("multiply-adds per cycle (bytes of weights per cycle), one thread\n");
  for (const WeightFormat format : {WeightFormat::LinearW4, WeightFormat::LinearW8}) {
    for (const int64_t rows : {1, 2, 4, 12, 64}) bench_linear(format, rows, tables);
  }
  for (const int64_t rows : {1, 2, 4, 32}) bench_attention(rows, tables);
}
