#include "runtime/api_call.h"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <new>
#include <shared_mutex>
#include <thread>

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

std::atomic<int> g_forks{0};  // that wait for the gate or have it

// The gate alone would keep a fork out for as long as calls of several threads overlap. A call that begins meanwhile
// waits for the fork, but not for ever: one that is inside may wait for what this one does.
void let_forks_pass() {
  using namespace std::chrono_literals;
  const auto until = std::chrono::steady_clock::now() + 10s;
  while (g_forks.load(std::memory_order_relaxed) > 0 && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(100us);
}

void before_fork() {
  g_forks.fetch_add(1, std::memory_order_relaxed);
  gate().lock();
  Stream::lock_all_and_drain();
}

void after_fork_in_parent() {
  Stream::unlock_all();
  gate().unlock();
  g_forks.fetch_sub(1, std::memory_order_relaxed);
}

void after_fork_in_child() {
  g_forks.store(0, std::memory_order_relaxed);
  Stream::abandon_all();
  forget_device_usage();
  // A lock belongs to a thread id, and the child's differs: make it anew instead of unlocking it.
  new (&gate()) std::shared_mutex;
}

}  // namespace

ApiCall::ApiCall() noexcept : outermost_(t_depth++ == 0) {
  static const int registered = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  (void)registered;
  if (!outermost_) return;
  if (g_forks.load(std::memory_order_relaxed) > 0) [[unlikely]]
    let_forks_pass();
  gate().lock_shared();
}

ApiCall::~ApiCall() {
  if (--t_depth == 0) gate().unlock_shared();
}

bool ApiCall::nested() noexcept { return t_depth > 1; }

ApiCall::Pause::Pause() noexcept : depth_(t_depth) {
  if (depth_ > 0) gate().unlock_shared();
  t_depth = 0;
}

ApiCall::Pause::~Pause() {
  if (depth_ > 0) gate().lock_shared();
  t_depth = depth_;
}

}  // namespace tcim_lite
