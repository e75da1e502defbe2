// Runs take the chip's time, as it is modelled: in a virtual clock, or in real time (docs/clock.md).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "layers/clock/timeline.h"
#include "layers/registry.h"

namespace tcim_lite::layers {

// Options, with the environment variable that speaks where one is not given:
//   mode (TCIM_LITE_CLOCK): virtual or realtime.
// Throws Error(Argument) for another mode and for an invalid profile.
std::shared_ptr<Observer> make_clock(const Options& options);

// Whether TCIM_LITE_CLOCK asks for the layer. Throws Error(Argument) for a value that it cannot have.
bool clock_wanted();

// "off", "virtual" or "realtime".
std::string clock_mode();

// Null unless the clock is virtual.
std::shared_ptr<Timeline> virtual_timeline();

// The time of the virtual clock where there is one, else real time. It goes on where one follows the other.
std::chrono::steady_clock::time_point continuous_now();
// The virtual clock, where there is one, goes on to this time.
void pass_until(std::chrono::steady_clock::time_point at);

// Of the virtual clock. Throw Error(State) without one.
uint64_t virtual_now_ns();
void pass_virtual_time(double seconds);

// Modelled nanoseconds that the device has run things since the clock was enabled; 0 while it is off.
uint64_t modelled_busy_ns(int device);

}  // namespace tcim_lite::layers
