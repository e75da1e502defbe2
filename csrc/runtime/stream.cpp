#include "runtime/stream.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <new>
#include <set>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/float_environment.h"
#include "runtime/api_call.h"
#include "runtime/spin.h"

namespace tcim_lite {
namespace {

struct Job {
  std::shared_ptr<Work> work;
  int rounds;
};

using Clock = std::chrono::steady_clock;

std::atomic<InterruptCheck> g_interrupt_check{nullptr};

}  // namespace

// Outside of the call, because the check may run anything, a fork included.
bool interrupted() {
  const InterruptCheck check = g_interrupt_check.load(std::memory_order_relaxed);
  if (check == nullptr) return false;
  const ApiCall::Pause outside;
  return check();
}

struct Stream::State {
  std::mutex mutex;
  std::condition_variable work_ready;
  std::condition_variable work_done;
  std::deque<Job> queue;
  bool busy = false;                  // a thread executes the job that was at the front
  int asleep = 0;                     // workers that wait for work_ready
  std::atomic<bool> dropping{false};  // the process ends: no further round
  int waiters = 0;                    // on work_done
  std::atomic<uint64_t> submitted{0};
  std::atomic<uint64_t> completed{0};
  std::thread worker;
  uint64_t ended = 0;  // workers told to end; each knows how many were before it

  bool claimable() const { return !busy && !queue.empty(); }

  // Executes the front job on this thread; gives it back between two rounds once `until` has passed. `lock` is held
  // before and after.
  void run_front(std::unique_lock<std::mutex>& lock, Clock::time_point until = Clock::time_point::max()) {
    Job job = std::move(queue.front());
    queue.pop_front();
    busy = true;
    lock.unlock();
    bool more = true;
    {
      const DefaultFloatEnvironment environment;
      while (more && !dropping.load(std::memory_order_relaxed)) {
        const Work::Round did = job.work->round();
        more = did == Work::Round::NotYet || (did == Work::Round::Done && --job.rounds > 0);
        if (more && until != Clock::time_point::max() && Clock::now() >= until) break;
      }
      const bool dropped = more && dropping.load(std::memory_order_relaxed);
      if (!more || dropped) job.work->finish(dropped);
      more &= !dropped;
    }
    if (!more) job.work.reset();  // may free device memory: not under the lock
    lock.lock();
    busy = false;
    if (more) return queue.push_front(std::move(job));
    completed.fetch_add(1, std::memory_order_release);
    if (waiters > 0) work_done.notify_all();
  }

  void work(uint64_t number) {
    std::unique_lock lock(mutex);
    while (number == ended) {
      if (claimable()) {
        run_front(lock);
        continue;
      }
      ++asleep;
      work_ready.wait(lock, [&] { return claimable() || number != ended; });
      --asleep;
    }
  }

  // `mutex` is held: the worker begins when the caller lets go.
  void start() {
    static const int registered = std::atexit(stop_all);
    (void)registered;
    try {
      worker = std::thread([this, number = ended] { work(number); });
    } catch (const std::system_error& error) {
      fail(ErrorCode::Device, "run: no thread could be started for the stream (", error.what(),
           "); raise the limits on threads and memory, or use run(sync=True)");
    }
  }

  // It ends after the job that it is at. The next submission starts another, so that threads which go on submitting
  // hold up nobody who waits for the end.
  void end_worker() {
    std::thread ending;
    {
      const std::lock_guard lock(mutex);
      ++ended;
      std::swap(ending, worker);
      work_ready.notify_all();
    }
    if (ending.joinable()) ending.join();
  }

  // Another thread has to finish the work that this one leaves. If no thread can be started, the next waiter does it.
  void leave_to_worker() noexcept {
    const std::lock_guard lock(mutex);
    try {
      if (!worker.joinable() && !queue.empty()) start();
    } catch (const Error&) {
    }
    work_ready.notify_one();
  }

  void wait(uint64_t ticket, bool interruptible) {
    const auto done = [&] { return completed.load(std::memory_order_acquire) >= ticket; };
    if (done()) return;
    auto next_check = interruptible ? Clock::now() + kInterruptInterval : Clock::time_point::max();
    std::unique_lock lock(mutex);
    while (!done()) {
      if (interruptible && Clock::now() >= next_check) {
        lock.unlock();
        // Before the question: answering it may wait for a thread that waits for this work.
        leave_to_worker();
        if (interrupted()) throw Interrupted();
        // This may now be the child of a fork, where no thread would release the lock; the child's streams are empty.
        if (done()) return;
        next_check = Clock::now() + kInterruptInterval;
        lock.lock();
        continue;
      }
      if (claimable()) {
        run_front(lock, next_check);
        continue;
      }
      lock.unlock();
      spin_until(done);
      lock.lock();
      if (done() || claimable()) continue;
      ++waiters;
      if (interruptible) {
        work_done.wait_until(lock, next_check);
      } else {
        work_done.wait(lock);
      }
      --waiters;
    }
    // The worker takes over the jobs that others have queued behind it.
    if (asleep > 0 && claimable()) work_ready.notify_one();
  }
};

namespace {

struct LiveStreams {
  std::mutex mutex;
  std::set<Stream*> streams;
};

// Never destroyed: the default streams of the devices live as long as the process.
LiveStreams& live() {
  static auto* const instance = new LiveStreams;
  return *instance;
}

}  // namespace

ProcessEnding::~ProcessEnding() = default;

Stream::Stream(bool auto_yield) : state_(std::make_shared<State>()), handle_(next_handle()), auto_yield_(auto_yield) {
  const std::lock_guard lock(live().mutex);
  live().streams.insert(this);
}

std::shared_ptr<Stream> Stream::create(bool auto_yield) {
  uint64_t handle = 0;
  return api_call(
      host_call<"Stream.create">, [&](CallEvent& event) { event.stream = handle; },
      [&] {
        auto stream = std::make_shared<Stream>(auto_yield);
        handle = stream->handle();
        return stream;
      });
}

Stream::~Stream() {
  {
    const std::lock_guard lock(live().mutex);
    live().streams.erase(this);
  }
  drain();
  state_->end_worker();
}

uint64_t Stream::submit(std::shared_ptr<Work> work, int rounds, bool wake) {
  State& state = *state_;
  std::unique_lock lock(state.mutex);
  // Before anything is queued: work without a worker would never end.
  if (wake && !state.worker.joinable()) state.start();
  state.queue.push_back({std::move(work), rounds});
  const uint64_t ticket = state.submitted.fetch_add(1, std::memory_order_release) + 1;
  if (wake && state.asleep > 0 && state.claimable()) {
    lock.unlock();
    state.work_ready.notify_one();
  }
  return ticket;
}

void Stream::wait(uint64_t ticket, bool interruptible) { state_->wait(ticket, interruptible); }

void Stream::drain(bool interruptible) { wait(state_->submitted.load(std::memory_order_acquire), interruptible); }

void set_interrupt_check(InterruptCheck check) { g_interrupt_check = check; }

// Streams come and go meanwhile.
void Stream::drain_all() {
  std::vector<std::pair<std::shared_ptr<State>, uint64_t>> queued;
  {
    const std::lock_guard lock(live().mutex);
    for (Stream* stream : live().streams) queued.emplace_back(stream->state_, stream->state_->submitted.load());
  }
  for (const auto& [state, ticket] : queued) state->wait(ticket, true);
}

// The list is not locked meanwhile: streams come and go, and what runs may need another lock.
void Stream::stop_all() {
  std::vector<std::shared_ptr<State>> states;
  {
    const std::lock_guard lock(live().mutex);
    for (Stream* stream : live().streams) states.push_back(stream->state_);
  }
  for (const auto& state : states) state->dropping = true;
  for (const auto& state : states) {
    state->end_worker();
    state->wait(state->submitted.load(std::memory_order_acquire), false);
    state->dropping = false;
  }
}

void Stream::lock_all_and_drain() {
  live().mutex.lock();
  for (Stream* stream : live().streams) stream->drain();
}

void Stream::unlock_all() { live().mutex.unlock(); }

void Stream::abandon_all() {
  for (Stream* stream : live().streams) {
    // The old state refers to a thread that the child does not have, and may hold a lock of that thread, so it is
    // abandoned.
    new std::shared_ptr<State>(stream->state_);
    auto fresh = std::make_shared<State>();
    fresh->submitted = stream->state_->submitted.load();
    fresh->completed = stream->state_->completed.load();
    stream->state_ = std::move(fresh);
  }
  new (&live().mutex) std::mutex;
}

}  // namespace tcim_lite
