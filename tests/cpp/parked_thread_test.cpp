// A parked thread: kept off its waker's processor until it runs again, with the affinity it had before.
#include "base/parked_thread.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "check.h"

using tcim_lite::ParkedThread;

namespace {

cpu_set_t allowed(pid_t thread) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CHECK_EQ(sched_getaffinity(thread, sizeof(set), &set), 0);
  return set;
}

cpu_set_t without(cpu_set_t set, int cpu) {
  CPU_CLR(size_t(cpu), &set);
  return set;
}

// A thread that may run on `on`; between its park() and its resume() the test looks at it.
class Sleeper {
 public:
  explicit Sleeper(cpu_set_t on)
      : thread_([this, on] {
          sched_setaffinity(0, sizeof(on), &on);
          parked.park();
          id = pid_t(syscall(SYS_gettid));
          id.notify_one();
          woken_.wait(false);
          parked.resume();
          after = allowed(0);
        }) {
    id.wait(0);
  }
  void wake() {
    woken_ = true;
    woken_.notify_one();
    thread_.join();
  }

  ParkedThread parked;
  std::atomic<pid_t> id{0};
  cpu_set_t after;

 private:
  std::atomic<bool> woken_{false};
  std::thread thread_;  // last: it uses the others
};

TEST(a_parked_thread_is_kept_off_a_processor_until_it_runs) {
  const cpu_set_t all = allowed(0);
  if (CPU_COUNT(&all) < 2) return;
  const int cpu = sched_getcpu();
  const cpu_set_t others = without(all, cpu);
  Sleeper sleeper(all);
  sleeper.parked.keep_off(cpu);
  cpu_set_t meanwhile = allowed(sleeper.id);
  CHECK(CPU_EQUAL(&meanwhile, &others));
  sleeper.parked.keep_off(cpu);  // who wakes it again before it runs changes nothing
  sleeper.wake();
  CHECK(CPU_EQUAL(&sleeper.after, &all));
}

TEST(a_thread_with_one_processor_keeps_it) {
  const int cpu = sched_getcpu();
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(size_t(cpu), &one);
  Sleeper sleeper(one);
  sleeper.parked.keep_off(cpu);
  cpu_set_t meanwhile = allowed(sleeper.id);
  CHECK(CPU_EQUAL(&meanwhile, &one));
  sleeper.wake();
  CHECK(CPU_EQUAL(&sleeper.after, &one));
}

TEST(an_affinity_set_while_it_sleeps_stays) {
  const cpu_set_t all = allowed(0);
  if (CPU_COUNT(&all) < 2) return;
  const int cpu = sched_getcpu();
  const cpu_set_t others = without(all, cpu);
  Sleeper sleeper(all);
  CHECK_EQ(sched_setaffinity(sleeper.id, sizeof(others), &others), 0);
  sleeper.parked.keep_off(cpu);
  sleeper.wake();
  CHECK(CPU_EQUAL(&sleeper.after, &others));
}

TEST(an_awake_thread_is_left_alone) {
  const cpu_set_t before = allowed(0);
  ParkedThread self;
  self.keep_off(sched_getcpu());
  self.park();
  self.resume();
  self.keep_off(sched_getcpu());
  cpu_set_t after = allowed(0);
  CHECK(CPU_EQUAL(&after, &before));
}

}  // namespace

int main() { return run_tests(); }
