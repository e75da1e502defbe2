// A FIFO of work. Work of one stream runs in order, work of different streams concurrently.
//
// A worker thread is started by the first asynchronous submission. A thread that waits for work nobody has begun takes
// it over instead of sleeping, so `run(); sync()` costs no hand-over; the worker therefore never spins (it would, on
// two busy cores, hold up the very thread that is about to wait: 58 against 23 us for a run after a pause).
// Thread-safe.
#pragma once

#include <cstdint>
#include <memory>

namespace tcim_lite {

class Work {
 public:
  virtual ~Work() = default;
  // Keeps its own errors. Called on the stream's worker or on a waiting thread, one piece of work of a stream at a
  // time.
  virtual void execute(int rounds) noexcept = 0;
};

class Stream {
 public:
  // auto_yield has no effect on results (spec tcim-api section 6).
  explicit Stream(bool auto_yield = false);
  // Waits for the queued work.
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  bool auto_yield() const noexcept { return auto_yield_; }

  // Returns the ticket to wait for. `wake` false: the caller waits at once, so the worker need not be woken.
  uint64_t submit(std::shared_ptr<Work> work, int rounds, bool wake = true);

  // Waits until the work of this ticket, and all before it, is done.
  void wait(uint64_t ticket);
  // Waits for everything submitted so far.
  void drain();

  // Finishes all work and joins all workers; the process is about to exit. Streams stay usable.
  static void stop_all();

  // For the fork handlers (api_call.cpp).
  static void lock_all_and_drain();
  static void unlock_all();
  static void abandon_all();

 private:
  struct State;

  State* state_;
  const bool auto_yield_;
};

}  // namespace tcim_lite
