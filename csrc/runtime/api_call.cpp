#include "runtime/api_call.h"

#include <pthread.h>

#include <new>
#include <shared_mutex>

#include "runtime/devices.h"
#include "runtime/stream.h"

namespace tcim_lite {
namespace {

// Never destroyed: calls may come from other threads while the process exits.
std::shared_mutex& gate() {
  static auto* const mutex = new std::shared_mutex;
  return *mutex;
}

// Calls of this thread that are inside: only the outermost holds the gate.
thread_local int t_depth = 0;

void before_fork() {
  gate().lock();
  Stream::lock_all_and_drain();
}

void after_fork_in_parent() {
  Stream::unlock_all();
  gate().unlock();
}

void after_fork_in_child() {
  Stream::abandon_all();
  forget_device_usage();
  // A lock belongs to a thread id, and the child's differs: make it anew instead of unlocking it.
  new (&gate()) std::shared_mutex;
}

}  // namespace

ApiCall::ApiCall() noexcept : outermost_(t_depth++ == 0) {
  static const int registered = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  (void)registered;
  if (outermost_) gate().lock_shared();
}

ApiCall::~ApiCall() {
  if (--t_depth == 0) gate().unlock_shared();
}

ApiCall::Pause::Pause() noexcept : depth_(t_depth) {
  if (depth_ > 0) gate().unlock_shared();
  t_depth = 0;
}

ApiCall::Pause::~Pause() {
  if (depth_ > 0) gate().lock_shared();
  t_depth = depth_;
}

}  // namespace tcim_lite
