// The pool: every task once, regions of several callers in turn, a forked child with a pool of its own.
#include "base/thread_pool.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <thread>
#include <vector>

#include "check.h"

using tcim_lite::ThreadPool;

namespace {

// Returns whether a region over `count` tasks ran each exactly once, with members in range.
bool covers(int64_t count, int64_t grain) {
  std::vector<std::atomic<int>> runs(size_t(count) + 1);
  std::atomic<bool> members_fit{true};
  ThreadPool& pool = ThreadPool::instance();
  pool.parallel_for(
      count,
      [&](int64_t task, int member) {
        runs[size_t(task)].fetch_add(1);
        if (member < 0 || member >= pool.size()) members_fit = false;
      },
      grain);
  for (int64_t task = 0; task < count; ++task) {
    if (runs[size_t(task)] != 1) return false;
  }
  return members_fit && runs[size_t(count)] == 0;
}

void test_every_task_runs_once() {
  for (int64_t count : {0, 1, 2, 3, 7, 64, 1000}) {
    for (int64_t grain : {1, 3, 64}) CHECK(covers(count, grain));
  }
}

void test_many_short_regions_follow_each_other() {
  std::atomic<int64_t> sum{0};
  for (int region = 0; region < 20'000; ++region) {
    ThreadPool::instance().parallel_for(5, [&](int64_t task, int) { sum.fetch_add(task, std::memory_order_relaxed); });
  }
  CHECK_EQ(sum.load(), int64_t{20'000 * 10});
}

void test_a_member_runs_one_task_at_a_time() {
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

void test_several_callers_take_turns() {
  std::atomic<int> good{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&] {
      for (int region = 0; region < 500; ++region) good += covers(17, 2);
    });
  }
  for (std::thread& caller : callers) caller.join();
  CHECK_EQ(good.load(), 4 * 500);
}

void test_a_forked_child_has_a_pool_of_the_same_size() {
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
  test_every_task_runs_once();
  test_many_short_regions_follow_each_other();
  test_a_member_runs_one_task_at_a_time();
  test_several_callers_take_turns();
  test_a_forked_child_has_a_pool_of_the_same_size();
  return check_result();
}
