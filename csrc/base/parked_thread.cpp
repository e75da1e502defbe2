#include "base/parked_thread.h"

#include <sys/syscall.h>
#include <unistd.h>

namespace tcim_lite {

void ParkedThread::park() noexcept {
  if (thread_ == 0) thread_ = pid_t(syscall(SYS_gettid));
  state_.store(State::Parked, std::memory_order_release);
}

void ParkedThread::resume() noexcept {
  State state = State::Parked;
  while (!state_.compare_exchange_weak(state, State::Awake, std::memory_order_acq_rel)) {
    if (state == State::KeptOff) {
      sched_setaffinity(0, sizeof(allowed_), &allowed_);
    } else if (state == State::Moving) {
      sched_yield();  // it woke of itself while another thread is about to wake it
      state = State::Parked;
    }
  }
}

void ParkedThread::keep_off(int cpu) noexcept {
  State state = State::Parked;
  if (!state_.compare_exchange_strong(state, State::Moving, std::memory_order_acq_rel)) return;
  cpu_set_t elsewhere;
  const bool known = sched_getaffinity(thread_, sizeof(allowed_), &allowed_) == 0;
  bool kept_off = false;
  if (known && cpu >= 0 && cpu < CPU_SETSIZE && CPU_ISSET(size_t(cpu), &allowed_) && CPU_COUNT(&allowed_) > 1) {
    elsewhere = allowed_;
    CPU_CLR(size_t(cpu), &elsewhere);
    kept_off = sched_setaffinity(thread_, sizeof(elsewhere), &elsewhere) == 0;
  }
  state_.store(kept_off ? State::KeptOff : State::Parked, std::memory_order_release);
}

}  // namespace tcim_lite
