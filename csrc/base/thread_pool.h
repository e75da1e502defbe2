// One pool per process. A region is a parallel loop over independent tasks; regions of different callers take turns.
//
// The calling thread is member 0 and works too. Workers spin for a few tens of microseconds after a region, so the
// regions of one decode step follow each other without a system call, then sleep (parked_thread.h says how they wake).
// No threads exist before the first region (C-20), and a forked child builds its own pool on first use.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/no_copy.h"

namespace tcim_lite {

class ThreadPool : public NoCopy {
 public:
  // TCIM_LITE_THREADS, else the smaller of the CPU affinity and the cgroup quota.
  static ThreadPool& instance();

  int size() const noexcept { return size_; }

  // Calls task(index, member) once for every index in [0, count), member in [0, size()). Tasks are handed out in
  // ascending order, `grain` at a time, so a slow core takes fewer. Tasks must not throw and must not start regions.
  template <typename Task>
  void parallel_for(int64_t count, const Task& task, int64_t grain = 1) {
    run_region(Order::Ascending, body_of<Task>, &task, count, grain);
  }

  // As parallel_for with grain 1, but every member walks through neighbouring tasks, ascending: for tasks that read on
  // where the one before ended, as what they fetch ahead is then their own. Who has finished takes over the second half
  // of what another has left. Fewer than two tasks a member are handed out as by parallel_for.
  template <typename Task>
  void parallel_runs(int64_t count, const Task& task) {
    run_region(Order::Runs, body_of<Task>, &task, count, 1);
  }

 private:
  using Body = void (*)(const void* context, int64_t begin, int64_t end, int member);
  enum class Order { Ascending, Runs };
  struct State;

  template <typename Task>
  static void body_of(const void* context, int64_t begin, int64_t end, int member) {
    const Task& call = *static_cast<const Task*>(context);
    for (int64_t index = begin; index < end; ++index) call(index, member);
  }

  explicit ThreadPool(int size);
  ~ThreadPool();
  void run_region(Order order, Body body, const void* context, int64_t count, int64_t grain);
  void work(int member);

  int size_;
  State* state_;
};

}  // namespace tcim_lite
