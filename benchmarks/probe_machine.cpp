// Prints this machine's limits as one line of JSON, for bench_qwen3.py.
#include <cstdio>
#include <thread>

#include "base/thread_pool.h"
#include "machine_limits.h"

int main() {
  using namespace tcim_lite::bench;
  const int threads = tcim_lite::ThreadPool::instance().size();
  std::printf(
      "{\"threads\": %d, \"read_gb_s\": %.2f, \"read_1_gb_s\": %.2f, \"int8_gop_s\": %.1f, \"core_to_core_ns\": "
      "%.0f}\n",
      threads, read_bandwidth(threads) / 1e9, read_bandwidth(1) / 1e9, int8_peak(threads) / 1e9,
      threads > 1 ? core_to_core_ns() : 0.0);
}
