#include "machine_limits.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tcim_lite::bench {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Seconds from the first thread's start until the last of `threads` threads has finished body(thread).
template <typename Body>
double run_together(int threads, const Body& body) {
  std::barrier start(threads);
  std::vector<double> started(threads), finished(threads);
  std::vector<std::thread> pool;
  for (int thread = 0; thread < threads; ++thread) {
    pool.emplace_back([&, thread] {
      start.arrive_and_wait();
      started[thread] = now();
      body(thread);
      finished[thread] = now();
    });
  }
  for (std::thread& thread : pool) thread.join();
  return *std::max_element(finished.begin(), finished.end()) - *std::min_element(started.begin(), started.end());
}

#if defined(__x86_64__)
// Four streams, so that the prefetchers are all at work; 256-bit loads reach the same DRAM rate as wider ones.
__attribute__((target("avx2"))) uint64_t read_all(const char* data, size_t bytes) {
  const size_t quarter = bytes / 4 / 128 * 128;
  __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;
  for (size_t i = 0; i < quarter; i += 64) {
    for (size_t half = 0; half < 64; half += 32) {
      a = _mm256_or_si256(a, *reinterpret_cast<const __m256i*>(data + i + half));
      b = _mm256_or_si256(b, *reinterpret_cast<const __m256i*>(data + quarter + i + half));
      c = _mm256_or_si256(c, *reinterpret_cast<const __m256i*>(data + 2 * quarter + i + half));
      d = _mm256_or_si256(d, *reinterpret_cast<const __m256i*>(data + 3 * quarter + i + half));
    }
  }
  const __m256i sum = _mm256_or_si256(_mm256_or_si256(a, b), _mm256_or_si256(c, d));
  return uint64_t(_mm256_extract_epi64(sum, 0));
}

// 24 independent accumulators hide the latency of the dot product on every core known.
__attribute__((target("avx512f,avx512vnni"))) void dot_zmm(int64_t rounds) {
  asm volatile(
      "1:\n"
      ".irp i,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23\n"
      "vpdpbusd %%zmm30,%%zmm31,%%zmm\\i\n"
      ".endr\n"
      "dec %0\n"
      "jnz 1b\n"
      : "+r"(rounds)
      :
      : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12",
        "xmm13", "xmm14", "xmm15", "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "cc");
}

__attribute__((target("avx2"))) void dot_ymm(int64_t rounds) {
  asm volatile(
      "1:\n"
      ".irp i,0,1,2,3,4,5,6,7,8,9,10,11\n"
      "vpmaddubsw %%ymm14,%%ymm15,%%ymm\\i\n"
      ".endr\n"
      "dec %0\n"
      "jnz 1b\n"
      : "+r"(rounds)
      :
      : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "cc");
}
#else
uint64_t read_all(const char* data, size_t bytes) {
  uint64_t sum = 0;
  for (size_t i = 0; i + 8 <= bytes; i += 8) sum |= *reinterpret_cast<const uint64_t*>(data + i);
  return sum;
}
#endif

std::atomic<uint64_t> g_sink;  // keeps the reads from being optimised away

}  // namespace

double read_bandwidth(int threads) {
  constexpr size_t kBytes = size_t{1} << 30;  // far beyond every cache
  auto* data = static_cast<char*>(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  if (data == MAP_FAILED) return 0;
  madvise(data, kBytes, MADV_HUGEPAGE);  // about 5 % more than with small pages
  for (size_t page = 0; page < kBytes; page += 4096) data[page] = 1;
  double best = 0;
  for (int attempt = 0; attempt < 5; ++attempt) {
    const size_t share = kBytes / threads / 4096 * 4096;
    const double seconds = run_together(threads, [&](int thread) { g_sink += read_all(data + thread * share, share); });
    best = std::max(best, double(share) * threads / seconds);
  }
  munmap(data, kBytes);
  return best;
}

double int8_peak(int threads) {
  double best = 0;
#if defined(__x86_64__)
  const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vnni");
  if (!wide && !__builtin_cpu_supports("avx2")) return 0;
  constexpr int64_t kRounds = 2'000'000;
  const double operations = wide ? 24.0 * 128 * kRounds : 12.0 * 64 * kRounds;
  for (int attempt = 0; attempt < 5; ++attempt) {
    const double seconds = run_together(threads, [&](int) { wide ? dot_zmm(kRounds) : dot_ymm(kRounds); });
    best = std::max(best, operations * threads / seconds);
  }
#else
  (void)threads;
#endif
  return best;
}

double core_to_core_ns() {
  constexpr int kRounds = 50'000;
  alignas(128) std::atomic<int> turn{0};
  const double seconds = run_together(2, [&](int thread) {
    for (int round = 0; round < kRounds; ++round) {
      while (turn.load(std::memory_order_acquire) != 2 * round + thread) {
      }
      turn.store(2 * round + 1 + thread, std::memory_order_release);
    }
  });
  return seconds / kRounds / 2 * 1e9;
}

}  // namespace tcim_lite::bench
