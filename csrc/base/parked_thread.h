// A sleeping thread that is not to wake on the processor of who wakes it.
//
// Linux often wakes a thread on the waker's processor, although others are idle: in a virtual machine a halted
// processor counts as taken (vcpu_is_preempted). The thread then waits until its waker blocks or the load is balanced,
// 2 to 5 ms (benchmarks/notes/log/onnx-networks.md). So the waker takes its own processor from the sleeper's affinity,
// and the sleeper gives it back as soon as it runs.
#pragma once

#include <sched.h>
#include <sys/types.h>

#include <atomic>

namespace tcim_lite {

class ParkedThread {
 public:
  // The thread itself, before and after it sleeps.
  void park() noexcept;
  void resume() noexcept;

  // Another thread, one at a time, before it wakes this one. Without effect unless this one is parked, may run on
  // `cpu` and may run elsewhere.
  void keep_off(int cpu) noexcept;

 private:
  enum class State { Awake, Parked, Moving, KeptOff };

  std::atomic<State> state_{State::Awake};
  pid_t thread_ = 0;   // written before it parks
  cpu_set_t allowed_;  // of a thread that is KeptOff: to be restored
};

}  // namespace tcim_lite
