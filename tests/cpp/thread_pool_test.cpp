// The pool: every task once, regions of several callers in turn, a forked child with a pool of its own.
#include "base/thread_pool.h"

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "check.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

using tcim_lite::ThreadPool;

namespace {

// Returns whether a region over `count` tasks ran each exactly once, with members in range. Runs where grain is 0.
bool covers(int64_t count, int64_t grain) {
  std::vector<std::atomic<int>> runs(size_t(count) + 1);
  std::atomic<bool> members_fit{true};
  ThreadPool& pool = ThreadPool::instance();
  const auto body = [&](int64_t task, int member) {
    runs[size_t(task)].fetch_add(1);
    if (member < 0 || member >= pool.size()) members_fit = false;
  };
  if (grain == 0) {
    pool.parallel_runs(count, body);
  } else {
    pool.parallel_for(count, body, grain);
  }
  for (int64_t task = 0; task < count; ++task) {
    if (runs[size_t(task)] != 1) return false;
  }
  return members_fit && runs[size_t(count)] == 0;
}

// The control register of this thread's floating point; returns what was there.
uint64_t set_float_control([[maybe_unused]] uint64_t setting) {
  uint64_t before = 0;
#if defined(__x86_64__)
  before = _mm_getcsr();
  _mm_setcsr(unsigned(setting));
#elif defined(__aarch64__)
  asm volatile("mrs %0, fpcr" : "=r"(before));
  asm volatile("msr fpcr, %0" : : "r"(setting) : "memory");
#endif
  return before;
}

// Must come first: the workers are made in here, by a thread that flushes.
TEST(workers_keep_subnormals_when_their_creator_flushes_them) {
#if defined(__x86_64__)
  const uint64_t before = set_float_control(0x9fc0);  // FTZ, DAZ
#else
  const uint64_t before = set_float_control(1 << 24);  // FPCR.FZ
#endif
  std::atomic<int> begun{0}, flushed{0};
  ThreadPool::instance().parallel_for(2, [&](int64_t, int member) {
    begun.fetch_add(1);
    while (begun.load() != 2) std::this_thread::yield();  // so a worker runs one of them
    volatile float smallest = 0x1p-126f;
    volatile float half = smallest * 0.5f;
    if (member != 0) flushed = half == 0.0f;
  });
  set_float_control(before);
  CHECK_EQ(flushed.load(), 0);
}

TEST(every_task_runs_once) {
  for (int64_t count : {0, 1, 2, 3, 7, 64, 1000}) {
    for (int64_t grain : {0, 1, 3, 64}) CHECK(covers(count, grain));
  }
}

TEST(many_short_regions_follow_each_other) {
  std::atomic<int64_t> sum{0};
  for (int region = 0; region < 20'000; ++region) {
    ThreadPool::instance().parallel_for(5, [&](int64_t task, int) { sum.fetch_add(task, std::memory_order_relaxed); });
  }
  CHECK_EQ(sum.load(), int64_t{20'000 * 10});
}

TEST(members_begin_with_runs_of_their_own) {
  ThreadPool& pool = ThreadPool::instance();
  constexpr int64_t kEach = 4;
  std::vector<std::atomic<int64_t>> first(size_t(pool.size()));
  for (auto& task : first) task = -1;
  std::atomic<int> begun{0};
  pool.parallel_runs(kEach * pool.size(), [&](int64_t task, int member) {
    if (first[size_t(member)] >= 0) return;
    first[size_t(member)] = task;
    begun.fetch_add(1);
    while (begun.load() != pool.size()) std::this_thread::yield();
  });
  for (int64_t member = 0; member < pool.size(); ++member) CHECK_EQ(first[size_t(member)].load(), kEach * member);
}

TEST(others_take_over_the_run_of_a_member_that_is_held_up) {
  constexpr int64_t kTasks = 1000;
  std::atomic<int64_t> done{0};
  if (ThreadPool::instance().size() == 1) return;
  ThreadPool::instance().parallel_runs(kTasks, [&](int64_t task, int) {
    while (task == 0 && done.load() != kTasks - 1) std::this_thread::yield();
    done.fetch_add(1);
  });
  CHECK_EQ(done.load(), kTasks);
}

TEST(a_member_runs_one_task_at_a_time) {
  ThreadPool& pool = ThreadPool::instance();
  std::vector<std::atomic<int>> inside(size_t(pool.size()));
  std::atomic<bool> alone{true};
  for (int region = 0; region < 200; ++region) {
    pool.parallel_for(64, [&](int64_t, int member) {
      if (inside[size_t(member)].fetch_add(1) != 0) alone = false;
      inside[size_t(member)].fetch_sub(1);
    });
  }
  CHECK(alone.load());
}

TEST(several_callers_take_turns) {
  std::atomic<int> good{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&] {
      for (int region = 0; region < 500; ++region) good += covers(17, region % 3);
    });
  }
  for (std::thread& caller : callers) caller.join();
  CHECK_EQ(good.load(), 4 * 500);
}

// Threads of this process whose affinity is not the caller's.
int threads_with_another_affinity() {
  cpu_set_t own, other;
  CHECK_EQ(sched_getaffinity(0, sizeof(own), &own), 0);
  int found = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    CHECK_EQ(sched_getaffinity(std::stoi(entry.path().filename()), sizeof(other), &other), 0);
    found += !CPU_EQUAL(&own, &other);
  }
  return found;
}

TEST(workers_that_slept_may_run_anywhere_again) {
  ThreadPool& pool = ThreadPool::instance();
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // workers sleep after 50 us
    std::atomic<int> begun{0};
    pool.parallel_for(pool.size(), [&](int64_t, int) {
      begun.fetch_add(1);
      while (begun.load() != pool.size()) std::this_thread::yield();  // so all of them run
    });
    CHECK_EQ(threads_with_another_affinity(), 0);
  }
}

TEST(a_forked_child_has_a_pool_of_the_same_size) {
  const int size = ThreadPool::instance().size();
  const pid_t child = fork();
  if (child == 0) {
    setenv("TCIM_LITE_THREADS", "9", 1);
    _exit(ThreadPool::instance().size() == size && covers(100, 1) ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace

int main() {
  setenv("TCIM_LITE_THREADS", "4", 1);
  return run_tests();
}
