#include "base/machine_limits.h"

#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <string_view>
#include <thread>
#include <vector>

#include "base/amx.h"
#include "base/env.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace tcim_lite {
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

uint64_t read_words(const char* data, size_t bytes) {
  uint64_t sum = 0;
  for (size_t i = 0; i + 8 <= bytes; i += 8) sum |= *reinterpret_cast<const uint64_t*>(data + i);
  return sum;
}

#if defined(__x86_64__)
// A vector of the compiler's own: immintrin.h would cost it as much as half of this file.
using Vector __attribute__((vector_size(32), may_alias)) = uint64_t;

// Four streams, so that the prefetchers are all at work; 256-bit loads reach the same DRAM rate as wider ones.
__attribute__((target("avx2"))) uint64_t read_vectors(const char* data, size_t bytes) {
  const size_t quarter = bytes / 4 / 128 * 128;
  Vector a = {}, b = {}, c = {}, d = {};
  for (size_t i = 0; i < quarter; i += 64) {
    for (size_t half = 0; half < 64; half += 32) {
      a |= *reinterpret_cast<const Vector*>(data + i + half);
      b |= *reinterpret_cast<const Vector*>(data + quarter + i + half);
      c |= *reinterpret_cast<const Vector*>(data + 2 * quarter + i + half);
      d |= *reinterpret_cast<const Vector*>(data + 3 * quarter + i + half);
    }
  }
  return (a | b | c | d)[0];
}

// A loop of one instruction on 12 sums that do not wait for each other: enough to hide its latency on every core known.
// A macro because assembly text cannot be a template argument.
#define TCIM_LITE_PEAK_LOOP(name, isa, instruction)                                                                  \
  __attribute__((target(isa))) void name(int64_t rounds) {                                                           \
    asm volatile("vzeroall\n1:\n.irp i,0,1,2,3,4,5,6,7,8,9,10,11\n" instruction "\n.endr\ndec %0\njnz 1b\n"          \
                 : "+r"(rounds)                                                                                      \
                 :                                                                                                   \
                 : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", \
                   "xmm12", "xmm13", "xmm14", "xmm15", "cc");                                                        \
  }
TCIM_LITE_PEAK_LOOP(dot_zmm, "avx512f,avx512vnni", "vpdpbusd %%zmm14,%%zmm15,%%zmm\\i")
TCIM_LITE_PEAK_LOOP(dot_ymm, "avx2", "%{vex%} vpdpbusd %%ymm14,%%ymm15,%%ymm\\i")
TCIM_LITE_PEAK_LOOP(madd_zmm, "avx512f,avx512bw", "vpmaddubsw %%zmm14,%%zmm15,%%zmm\\i")
TCIM_LITE_PEAK_LOOP(madd_ymm, "avx2", "vpmaddubsw %%ymm14,%%ymm15,%%ymm\\i")
TCIM_LITE_PEAK_LOOP(fma_zmm, "avx512f", "vfmadd231ps %%zmm14,%%zmm15,%%zmm\\i")
TCIM_LITE_PEAK_LOOP(fma_ymm, "avx2,fma", "vfmadd231ps %%ymm14,%%ymm15,%%ymm\\i")
#undef TCIM_LITE_PEAK_LOOP

// Six sums of 16 x 16, 16 rows of 64 bytes each operand.
void dot_tile(int64_t rounds) {
  struct alignas(64) TileConfig {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  };
  static_assert(sizeof(TileConfig) == 64);
  const TileConfig config;
  asm volatile(
      "ldtilecfg %1\n"
      "1:\n"
      ".irp i,0,1,2,3,4,5\n"
      "tdpbusd %%tmm7,%%tmm6,%%tmm\\i\n"
      ".endr\n"
      "dec %0\n"
      "jnz 1b\n"
      "tilerelease\n"
      : "+r"(rounds)
      : "m"(config)
      : "cc");
}

bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

bool has_avx_vnni() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return has_avx2() && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) && (eax >> 4 & 1) != 0;
}

bool may_use_tiles() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr unsigned kAmxTile = 1U << 24, kAmxInt8 = 1U << 25;
  if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) || (~edx & (kAmxTile | kAmxInt8)) != 0) return false;
  return request_amx_tiles();
}
#endif

uint64_t read_all(const char* data, size_t bytes) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return read_vectors(data, bytes);
#endif
  return read_words(data, bytes);
}

// Operations per second of loop(rounds) on every thread, best of five tries of about 5 ms.
[[maybe_unused]] double best_rate(int threads, void (*loop)(int64_t), double operations_per_round) {
  constexpr int64_t kWarm = 20'000;
  loop(kWarm);
  const double started = now();
  loop(kWarm);
  const int64_t rounds = std::max(kWarm, int64_t(0.005 / (now() - started) * kWarm));
  double best = 0;
  for (int attempt = 0; attempt < 5; ++attempt) {
    const double seconds = run_together(threads, [&](int) { loop(rounds); });
    best = std::max(best, operations_per_round * double(rounds) * threads / seconds);
  }
  return best;
}

std::atomic<uint64_t> g_sink;  // keeps the reads from being optimised away

}  // namespace

double read_bandwidth(int threads, size_t bytes) {
  auto* data = static_cast<char*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  if (data == MAP_FAILED) return 0;
  madvise(data, bytes, MADV_HUGEPAGE);  // about 5 % more than with small pages
  for (size_t page = 0; page < bytes; page += 4096) data[page] = 1;
  const size_t share = bytes / threads / 4096 * 4096;
  double best = 0;
  for (int attempt = 0; attempt < 5; ++attempt) {
    const double seconds = run_together(threads, [&](int thread) { g_sink += read_all(data + thread * share, share); });
    best = std::max(best, double(share) * threads / seconds);
  }
  munmap(data, bytes);
  return best;
}

#if defined(__x86_64__)
namespace {

struct Loop {
  std::string_view instruction;
  void (*run)(int64_t) = nullptr;
  double products = 0;  // of one instruction
};

// The vector instructions of a set of kernels (backends/cpu/dispatch.h).
struct KernelSet {
  std::string_view name;
  bool (*runs)();  // whether this machine has them
  Loop int8, fp32;
};

bool has_avx512() { return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw"); }
bool has_avx512_vnni() { return has_avx512() && __builtin_cpu_supports("avx512vnni"); }

constexpr Loop kFmaZmm = {"VFMADD zmm", fma_zmm, 16}, kFmaYmm = {"VFMADD ymm", fma_ymm, 8};
constexpr KernelSet kKernelSets[] = {
    {"avx512vnni", has_avx512_vnni, {"VPDPBUSD zmm", dot_zmm, 64}, kFmaZmm},
    {"avx512", has_avx512, {"VPMADDUBSW zmm", madd_zmm, 64}, kFmaZmm},
    {"avxvnni", has_avx_vnni, {"VPDPBUSD ymm", dot_ymm, 32}, kFmaYmm},
    {"avx2", has_avx2, {"VPMADDUBSW ymm", madd_ymm, 32}, kFmaYmm},
};

// The set that TCIM_LITE_ISA forces, if it is one of these.
const KernelSet* forced_set() {
  const auto forced = env_text("TCIM_LITE_ISA");
  for (const KernelSet& set : kKernelSets) {
    if (forced == set.name) return &set;
  }
  return nullptr;
}

// That set, or else the best of this machine.
const KernelSet* kernel_set() {
  if (const KernelSet* forced = forced_set()) return forced->runs() ? forced : nullptr;
  for (const KernelSet& set : kKernelSets) {
    if (set.runs()) return &set;
  }
  return nullptr;
}

double peak_of(const Loop KernelSet::* which, int threads) {
  constexpr double kSums = 12, kPerProduct = 2;
  const KernelSet* set = kernel_set();
  return set == nullptr ? 0 : best_rate(threads, (set->*which).run, kSums * (set->*which).products * kPerProduct);
}

}  // namespace

double int8_peak(int threads) { return peak_of(&KernelSet::int8, threads); }

std::string_view int8_instruction() {
  const KernelSet* set = kernel_set();
  return set == nullptr ? std::string_view() : set->int8.instruction;
}

double int8_tile_peak(int threads) {
  if (forced_set() != nullptr || !may_use_tiles()) return 0;
  return best_rate(threads, dot_tile, 6.0 * 16 * 16 * 64 * 2);
}

double fp32_peak(int threads) { return peak_of(&KernelSet::fp32, threads); }
#else
double int8_peak(int) { return 0; }
std::string_view int8_instruction() { return {}; }
double int8_tile_peak(int) { return 0; }
double fp32_peak(int) { return 0; }
#endif

// The best of short tries, for half a second: where other programs run, two threads seldom run at the same time, and a
// try in which they take turns says nothing and takes milliseconds a pass.
double core_to_core_ns() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < 2) return 0;
  constexpr int kRounds = 1000, kTries = 50, kSpinsBetweenLooks = 4096;
  constexpr double kTurns = 10'000;  // nanoseconds: more is the scheduler, not the cache
  const double deadline = now() + 0.5;
  double best = 0;
  for (int attempt = 0; attempt < kTries && now() < deadline; ++attempt) {
    alignas(128) std::atomic<int> turn{0};
    alignas(128) std::atomic<bool> late{false};
    const double seconds = run_together(2, [&](int thread) {
      for (int round = 0; round < kRounds && !late; ++round) {
        for (int spins = 1; turn.load(std::memory_order_acquire) != 2 * round + thread && !late; ++spins) {
          if (spins % kSpinsBetweenLooks == 0 && now() > deadline) late = true;
        }
        turn.store(2 * round + 1 + thread, std::memory_order_release);
      }
    });
    const double each = seconds / kRounds / 2 * 1e9;
    if (!late && each < kTurns && (best == 0 || each < best)) best = each;
  }
  return best;
}

}  // namespace tcim_lite
