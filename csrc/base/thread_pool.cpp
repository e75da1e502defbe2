#include "base/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "base/env.h"
#include "base/float_environment.h"
#include "base/log.h"
#include "base/parked_thread.h"

namespace tcim_lite {
namespace {

// Longer than the serial work between two regions of a decode step, shorter than anybody's time slice.
constexpr auto kSpin = std::chrono::microseconds(50);

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// CPUs' worth of time the cgroup grants (v2, then v1), or `unlimited`.
int cgroup_cpus(int unlimited) {
  double quota = -1, period = 0;
  std::string first;
  if (std::ifstream v2("/sys/fs/cgroup/cpu.max"); v2 >> first >> period) {
    if (first == "max") return unlimited;
    quota = std::atof(first.c_str());
  } else {
    std::ifstream("/sys/fs/cgroup/cpu/cpu.cfs_quota_us") >> quota;
    std::ifstream("/sys/fs/cgroup/cpu/cpu.cfs_period_us") >> period;
  }
  if (quota <= 0 || period <= 0) return unlimited;
  return std::max(1, int(std::ceil(quota / period)));
}

int default_size() {
  if (const auto threads = env_int("TCIM_LITE_THREADS", 1, 1024)) return int(*threads);
  cpu_set_t set;
  CPU_ZERO(&set);
  const int cpus =
      sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : int(std::thread::hardware_concurrency());
  return std::max(1, std::min(cpus, cgroup_cpus(cpus)));
}

std::atomic<ThreadPool*> g_pool{nullptr};

// The tasks [begin, end) a member has left, in one word, so that the member takes from the front and others from the
// back. The first task leaves it only to be run, so no word of tasks comes back within a region.
class alignas(64) Run {
 public:
  void set(int64_t begin, int64_t end) { word_.store(pack(begin, end), std::memory_order_relaxed); }
  int64_t left() const { return left(word_.load(std::memory_order_relaxed)); }

  // The first task, or -1.
  int64_t take() {
    uint64_t word = word_.load(std::memory_order_relaxed);
    while (left(word) > 0) {
      if (word_.compare_exchange_weak(word, word + kOneTaken, std::memory_order_relaxed)) return begin(word);
    }
    return -1;
  }

  // The second half, rounded up, becomes `thief`'s. Its first task is returned, to be run at once: so nobody takes that
  // from the thief before it has begun. -1 when there is nothing.
  int64_t give_half(Run& thief) {
    uint64_t word = word_.load(std::memory_order_relaxed);
    while (left(word) > 0) {
      const int64_t middle = end(word) - (left(word) + 1) / 2;
      if (!word_.compare_exchange_weak(word, pack(begin(word), middle), std::memory_order_relaxed)) continue;
      thief.set(middle + 1, end(word));
      return middle;
    }
    return -1;
  }

 private:
  static constexpr uint64_t kOneTaken = uint64_t{1} << 32;
  static uint64_t pack(int64_t begin, int64_t end) { return uint64_t(begin) << 32 | uint64_t(end); }
  static int64_t begin(uint64_t word) { return int64_t(word >> 32); }
  static int64_t end(uint64_t word) { return int64_t(uint32_t(word)); }
  static int64_t left(uint64_t word) { return end(word) - begin(word); }

  std::atomic<uint64_t> word_{0};
};

}  // namespace

// A region is published in `word`: its number, whether it is open, and how many workers are inside. A worker joins only
// an open region, and the caller waits only for those that joined: a worker the system has descheduled holds up nobody.
struct ThreadPool::State {
  static constexpr uint64_t kOpen = 1 << 16;
  static constexpr uint64_t kActive = kOpen - 1;
  static constexpr uint64_t kNumber = kOpen << 1;

  alignas(64) std::atomic<uint64_t> word{0};
  alignas(64) std::atomic<int64_t> next{0};
  alignas(64) std::atomic<uint32_t> wake{0};
  std::atomic<int> sleepers{0};

  // Written by the caller before the region opens.
  alignas(64) Body body = nullptr;
  const void* context = nullptr;
  int64_t count = 0;
  int64_t grain = 1;
  bool in_runs = false;

  std::vector<Run> runs;             // one per member
  std::vector<ParkedThread> parked;  // one per member
  std::mutex turn;                   // one region at a time
  bool started = false;

  explicit State(int size) : runs(size_t(size)), parked(size_t(size)) {}

  void wake_workers() {
    const int cpu = sched_getcpu();
    for (ParkedThread& worker : parked) worker.keep_off(cpu);
    wake.fetch_add(1, std::memory_order_seq_cst);
    wake.notify_all();
  }

  void share_out() {
    const auto size = int64_t(runs.size());
    for (int64_t member = 0; member < size; ++member)
      runs[size_t(member)].set(count * member / size, count * (member + 1) / size);
  }

  // A task of whoever has most left; half of the others become `own`. -1 when nobody has any.
  int64_t take_over(Run& own) {
    for (;;) {
      const auto most =
          std::max_element(runs.begin(), runs.end(), [](const Run& a, const Run& b) { return a.left() < b.left(); });
      if (most->left() <= 0) return -1;
      if (const int64_t index = most->give_half(own); index >= 0) return index;
    }
  }

  void drain(int member) { in_runs ? drain_runs(member) : drain_ascending(member); }

  void drain_runs(int member) {
    Run& own = runs[size_t(member)];
    for (;;) {
      int64_t index = own.take();
      if (index < 0) index = take_over(own);
      if (index < 0) return;
      body(context, index, index + 1, member);
    }
  }

  void drain_ascending(int member) {
    for (;;) {
      const int64_t begin = next.fetch_add(grain, std::memory_order_relaxed);
      if (begin >= count) return;
      body(context, begin, std::min(begin + grain, count), member);
    }
  }
};

ThreadPool& ThreadPool::instance() {
  ThreadPool* pool = g_pool.load(std::memory_order_acquire);
  if (pool != nullptr) return *pool;
  // The child of a fork has none of the threads: it forgets the pool and makes another. Pools are never destroyed, as
  // their threads may outlive every static object.
  static const int registered = pthread_atfork(nullptr, nullptr, [] { g_pool.store(nullptr); });
  (void)registered;
  // One size per process and its forks: what was sized for the pool before a fork fits the child's.
  static const int size = default_size();
  env_is_settled({"TCIM_LITE_THREADS"});
  auto* fresh = new ThreadPool(size);
  if (g_pool.compare_exchange_strong(pool, fresh)) return *fresh;
  delete fresh;
  return *pool;
}

ThreadPool::ThreadPool(int size) : size_(size), state_(new State(size)) {}
ThreadPool::~ThreadPool() { delete state_; }  // only of a pool that never started

void ThreadPool::run_region(Order order, Body body, const void* context, int64_t count, int64_t grain) {
  if (count <= 0) return;
  if (size_ == 1 || count <= grain) {
    body(context, 0, count, 0);
    return;
  }
  State& state = *state_;
  const std::lock_guard lock(state.turn);
  if (!state.started) {
    state.started = true;
    try {
      for (int member = 1; member < size_; ++member) std::thread([this, member] { work(member); }).detach();
    } catch (const std::system_error& error) {
      log(LogLevel::Warn, std::string("the thread pool is smaller than asked for: ") + error.what());
    }
  }
  state.body = body;
  state.context = context;
  state.count = count;
  state.grain = grain;
  state.in_runs = order == Order::Runs && count >= 2 * size_ && count <= UINT32_MAX;
  state.next.store(0, std::memory_order_relaxed);
  if (state.in_runs) state.share_out();
  const uint64_t number = (state.word.load(std::memory_order_relaxed) / State::kNumber + 1) * State::kNumber;
  state.word.store(number | State::kOpen, std::memory_order_seq_cst);
  if (state.sleepers.load(std::memory_order_seq_cst) > 0) state.wake_workers();
  state.drain(0);
  state.word.fetch_and(~State::kOpen, std::memory_order_acq_rel);
  for (int tries = 0; (state.word.load(std::memory_order_acquire) & State::kActive) != 0; ++tries) {
    if (tries < 4096) {
      pause();
    } else {
      sched_yield();  // a joined worker lost its CPU in the middle of a task
    }
  }
}

void ThreadPool::work(int member) {
  const DefaultFloatEnvironment environment;  // the creating thread, whose own is inherited, may flush subnormals
  State& state = *state_;
  uint64_t seen = 0;
  for (;;) {
    const auto idle_since = std::chrono::steady_clock::now();
    for (int tries = 1;; ++tries) {
      uint64_t word = state.word.load(std::memory_order_acquire);
      if ((word & State::kOpen) != 0 && word / State::kNumber != seen) {
        if (!state.word.compare_exchange_weak(word, word + 1, std::memory_order_acq_rel)) continue;
        seen = word / State::kNumber;
        break;
      }
      pause();
      if (tries % 32 != 0 || std::chrono::steady_clock::now() - idle_since < kSpin) continue;
      const uint32_t ticket = state.wake.load(std::memory_order_relaxed);
      state.parked[size_t(member)].park();
      state.sleepers.fetch_add(1, std::memory_order_seq_cst);
      word = state.word.load(std::memory_order_seq_cst);
      if ((word & State::kOpen) == 0 || word / State::kNumber == seen) state.wake.wait(ticket);
      state.sleepers.fetch_sub(1, std::memory_order_relaxed);
      state.parked[size_t(member)].resume();
    }
    state.drain(member);
    state.word.fetch_sub(1, std::memory_order_acq_rel);
  }
}

}  // namespace tcim_lite
