// A FIFO of work. Work of one stream runs in order, work of different streams concurrently.
//
// A worker thread is started by the first asynchronous submission. A thread that waits for work nobody has begun takes
// it over instead of sleeping, so `run(); sync()` costs no hand-over; the worker therefore never spins (it would, on
// two busy cores, hold up the very thread that is about to wait: 58 against 23 us for a run after a pause).
// Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "base/error.h"
#include "base/no_copy.h"

namespace tcim_lite {

// Keeps its own errors. Called on the stream's worker or on waiting threads, one piece of work of a stream at a time.
class Work {
 public:
  virtual ~Work() = default;
  enum class Round { Done, NotYet, Last };
  // Last: a further round makes no sense. NotYet: this one has not happened; asked again, and may have waited briefly.
  virtual Round round() noexcept = 0;
  // After the last round. `dropped`: rounds are missing because the process ends.
  virtual void finish(bool dropped) noexcept = 0;
};

// Thrown by a wait that the user has interrupted (Ctrl-C). The work goes on.
struct Interrupted {};

// What was queued is dropped because the process is ending.
class __attribute__((visibility("default"))) ProcessEnding : public Error {
 public:
  using Error::Error;
  ~ProcessEnding() override;
};

// Asked by interruptible waits after every interval, with no lock held: it may call the whole API. Set by the bindings,
// once, before there are streams.
constexpr std::chrono::milliseconds kInterruptInterval{50};
using InterruptCheck = bool (*)();
void set_interrupt_check(InterruptCheck check);
// Asks it; true: the wait of this thread ends with Interrupted.
bool interrupted();

class Stream : public NoCopy {
 public:
  // auto_yield has no effect on results.
  explicit Stream(bool auto_yield = false);
  // The same, as a call of the API.
  static std::shared_ptr<Stream> create(bool auto_yield);
  // Waits for the queued work.
  ~Stream();

  uint64_t handle() const noexcept { return handle_; }
  bool auto_yield() const noexcept { return auto_yield_; }

  // Returns the ticket to wait for. `wake` false: the caller waits at once, so the worker need not be woken.
  uint64_t submit(std::shared_ptr<Work> work, int rounds, bool wake = true);

  // Waits until the work of this ticket, and all before it, is done. Only an interruptible wait throws Interrupted; its
  // caller holds no lock.
  void wait(uint64_t ticket, bool interruptible = false);
  // Waits for everything submitted so far.
  void drain(bool interruptible = false);

  // Waits for everything submitted so far, on every stream; interruptible.
  static void drain_all();

  // Drops the rounds nobody has begun and joins all workers; the process is about to exit. Streams stay usable: threads
  // that go on submitting get new workers.
  static void stop_all();

  // For the fork handlers (api_call.cpp).
  static void lock_all_and_drain();
  static void unlock_all();
  static void abandon_all();

 private:
  struct State;

  std::shared_ptr<State> state_;
  const uint64_t handle_;
  const bool auto_yield_;
};

}  // namespace tcim_lite
