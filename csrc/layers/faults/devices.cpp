#include "layers/faults/devices.h"

#include <algorithm>

#include "layers/clock/clock.h"
#include "runtime/devices.h"

namespace tcim_lite::layers {
namespace {

constexpr auto kMoment = std::chrono::milliseconds(20);

FaultyDevices::Clock::duration duration_of(double seconds) {
  return std::chrono::duration_cast<FaultyDevices::Clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

void FaultyDevices::forget() noexcept {
  const std::lock_guard lock(mutex_);
  for (auto& [device, state] : states_) restore(device, state);  // not erased: still_hangs() waits with one
  changed_.notify_all();
}

std::optional<std::string> FaultyDevices::broken(std::span<const int> devices) {
  const std::lock_guard lock(mutex_);
  for (const int device : devices) {
    const auto state = states_.find(device);
    if (state != states_.end() && !state->second.why.empty()) return state->second.why;
  }
  return std::nullopt;
}

void FaultyDevices::lose(int device, const std::string& why) {
  const std::lock_guard lock(mutex_);
  states_[device].why = why;
}

void FaultyDevices::hang(int device, double seconds, const std::string& why) {
  const std::lock_guard lock(mutex_);
  State& state = states_[device];
  state.hangs_until = continuous_now() + duration_of(seconds);
  state.why_then = why;
}

bool FaultyDevices::still_hangs(std::span<const int> devices) {
  std::unique_lock lock(mutex_);
  for (const int device : devices) {
    const auto found = states_.find(device);
    if (found == states_.end() || !found->second.hangs_until) continue;
    State& state = found->second;
    pass_until(*state.hangs_until);
    const auto left = std::min<Clock::duration>(*state.hangs_until - continuous_now(), kMoment);
    changed_.wait_for(lock, left, [&] { return state.resets || !state.hangs_until; });
    if (!state.hangs_until) continue;  // another thread has seen its end
    if (!state.resets && continuous_now() < *state.hangs_until) return true;
    state.hangs_until.reset();
    state.why = state.why_then;
    changed_.notify_all();
  }
  return false;
}

void FaultyDevices::throttle(int device, int clock_mhz, double seconds) {
  Device& real = use_device(device);
  const std::lock_guard lock(mutex_);
  State& state = states_[device];
  state.limited_until = seconds == 0 ? Clock::time_point::max() : continuous_now() + duration_of(seconds);
  state.slowdown = std::max(1.0, double(real.profile().clock_mhz) / clock_mhz);
  real.limit_clock(clock_mhz);
}

void FaultyDevices::cool_down() {
  const std::lock_guard lock(mutex_);
  for (auto& [device, state] : states_) {
    if (state.limited_until && *state.limited_until <= continuous_now()) end_limit(device, state);
  }
}

double FaultyDevices::slowdown(std::span<const int> devices) {
  const std::lock_guard lock(mutex_);
  double slowest = 1;
  for (const int device : devices) {
    const auto state = states_.find(device);
    if (state != states_.end()) slowest = std::max(slowest, state->second.slowdown);
  }
  return slowest;
}

void FaultyDevices::remember_flip(int device, std::shared_ptr<const Weight> weight, uint64_t byte, int bit) {
  const std::lock_guard lock(mutex_);
  states_[device].flips.push_back({std::move(weight), byte, bit});
}

void FaultyDevices::forget_errors(std::span<const int> devices, const std::shared_ptr<Program>& program) {
  program->drop_error();
  const std::lock_guard lock(mutex_);
  for (const int device : devices) {
    auto& told = states_[device].told;
    std::erase_if(told, [&](const auto& each) { return each.expired() || each.lock() == program; });
    told.push_back(program);
  }
}

void FaultyDevices::begin_reset(int device) {
  const std::lock_guard lock(mutex_);
  states_[device].resets = true;
  changed_.notify_all();
}

void FaultyDevices::end_reset(int device, bool done) {
  const std::lock_guard lock(mutex_);
  State& state = states_[device];
  state.resets = false;
  if (done) restore(device, state);
}

void FaultyDevices::reset(int device) {
  const std::lock_guard lock(mutex_);
  const auto state = states_.find(device);
  if (state != states_.end()) undo(device, state->second);
  if (Device* real = find_device(device)) {
    if (DeviceUsage* usage = real->usage_if_any()) usage->busy.clear();
  }
}

void FaultyDevices::end_limit(int device, State& state) {
  state.limited_until.reset();
  state.slowdown = 1;
  if (Device* real = find_device(device)) real->limit_clock(0);
}

void FaultyDevices::restore(int device, State& state) noexcept {
  state.hangs_until.reset();
  state.why.clear();
  undo(device, state);
}

void FaultyDevices::undo(int device, State& state) noexcept {
  if (state.limited_until) end_limit(device, state);
  for (const Flip& flip : state.flips) {
    if (const auto weight = flip.weight.lock()) weight->flip_bit(flip.byte, flip.bit);
  }
  state.flips.clear();
  for (const auto& each : state.told) {
    if (const auto program = each.lock()) program->drop_error();
  }
  state.told.clear();
}

}  // namespace tcim_lite::layers
