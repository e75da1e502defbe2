#include "layers/clock/timeline.h"

#include <algorithm>
#include <cmath>

namespace tcim_lite::layers {

uint64_t Timeline::now() const {
  const std::lock_guard lock(mutex_);
  return now_;
}

void Timeline::pass(uint64_t ns) {
  const std::lock_guard lock(mutex_);
  now_ += ns;
}

void Timeline::wait_until(uint64_t at) {
  const std::lock_guard lock(mutex_);
  now_ = std::max(now_, at);
}

void Timeline::submit(uint64_t module) {
  const std::lock_guard lock(mutex_);
  submitted_[module] = now_;
}

uint64_t Timeline::run(uint64_t module, uint64_t stream, std::span<const int> devices, uint64_t ns, uint64_t earliest) {
  const std::lock_guard lock(mutex_);
  Run& run = last_run_[stream];
  uint64_t begin = std::max({earliest, submitted_[module], run.end});
  for (const int device : devices) begin = std::max(begin, device_free_[device]);
  run = {begin, begin + ns, module, {devices.begin(), devices.end()}};
  for (const int device : devices) {
    device_free_[device] = run.end;
    busy_[device] += ns;
  }
  return module_done_[module] = run.end;
}

void Timeline::delay(uint64_t stream, uint64_t ns) {
  const std::lock_guard lock(mutex_);
  make_longer(stream, ns);
}

void Timeline::stretch(uint64_t stream, double factor) {
  const std::lock_guard lock(mutex_);
  const Run& run = last_run_[stream];
  make_longer(stream, uint64_t(std::llround(double(run.end - run.begin) * (factor - 1))));
}

void Timeline::make_longer(uint64_t stream, uint64_t ns) {
  Run& run = last_run_[stream];
  run.end += ns;
  for (const int device : run.devices) {
    device_free_[device] = std::max(device_free_[device], run.end);
    busy_[device] += ns;
  }
  module_done_[run.module] = std::max(module_done_[run.module], run.end);
}

uint64_t Timeline::end_of_last_run(uint64_t stream) const {
  const std::lock_guard lock(mutex_);
  const auto run = last_run_.find(stream);
  return run == last_run_.end() ? 0 : run->second.end;
}

void Timeline::wait_for_stream(uint64_t stream) { wait_until(end_of_last_run(stream)); }

void Timeline::wait_for_module(uint64_t module) {
  const std::lock_guard lock(mutex_);
  const auto done = module_done_.find(module);
  if (done != module_done_.end()) now_ = std::max(now_, done->second);
}

void Timeline::wait_for_devices() {
  const std::lock_guard lock(mutex_);
  for (const auto& [device, free] : device_free_) now_ = std::max(now_, free);
}

uint64_t Timeline::busy_ns(int device) const {
  const std::lock_guard lock(mutex_);
  const auto busy = busy_.find(device);
  return busy == busy_.end() ? 0 : busy->second;
}

void Timeline::forget_module(uint64_t module) {
  const std::lock_guard lock(mutex_);
  submitted_.erase(module);
  module_done_.erase(module);
}

}  // namespace tcim_lite::layers
