// The devices that a fault has taken away or made slow, until they are reset. Thread-safe.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/no_copy.h"
#include "runtime/program.h"

namespace tcim_lite::layers {

class FaultyDevices : public NoCopy {
 public:
  using Clock = std::chrono::steady_clock;

  FaultyDevices() = default;
  ~FaultyDevices() { forget(); }

  // As a reset of every device.
  void forget() noexcept;

  // Why one of the devices answers no call; nothing if all of them do.
  std::optional<std::string> broken(std::span<const int> devices);
  void lose(int device, const std::string& why);

  // The device answers nothing for so long, or until a reset of it begins; it is lost then.
  void hang(int device, double seconds, const std::string& why);
  // Whether one of the devices still hangs, after a wait of some hundredths of a second if it does.
  bool still_hangs(std::span<const int> devices);

  // Its clock is limited, for `seconds` or, if that is 0, until a reset.
  void throttle(int device, int clock_mhz, double seconds);
  // Ends limits whose time is over.
  void cool_down();
  // How many times longer than without limits the devices need.
  double slowdown(std::span<const int> devices);

  // A reset restores the bit.
  void remember_flip(int device, std::shared_ptr<const Weight> weight, uint64_t byte, int bit);
  // A caller of the program has been told that the device is lost: that stands for the errors of its queued runs, also
  // of those that fail until the device is reset.
  void forget_errors(std::span<const int> devices, const std::shared_ptr<Program>& program);

  // Around HalDevice's reset, which waits for queued work: that fails at once between them.
  void begin_reset(int device);
  void end_reset(int device, bool done);
  // A reset that nobody asked for.
  void reset(int device);

 private:
  struct Flip {
    std::weak_ptr<const Weight> weight;
    uint64_t byte;
    int bit;
  };
  struct State {
    std::string why;  // not empty: lost
    std::optional<Clock::time_point> hangs_until;
    std::string why_then;  // is `why` from then on
    bool resets = false;
    std::optional<Clock::time_point> limited_until;  // max(): until a reset
    double slowdown = 1;
    std::vector<Flip> flips;
    std::vector<std::weak_ptr<Program>> told;
  };

  static void end_limit(int device, State& state);
  // It answers again, and nothing is left of what befell it.
  static void restore(int device, State& state) noexcept;
  // Flips and limits, and errors whose callers have been told.
  static void undo(int device, State& state) noexcept;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, State> states_;
};

}  // namespace tcim_lite::layers
