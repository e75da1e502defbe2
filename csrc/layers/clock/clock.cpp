#include "layers/clock/clock.h"

#include <chrono>
#include <cmath>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/env.h"
#include "base/error.h"
#include "layers/clock/copies.h"
#include "layers/clock/modelled_runs.h"
#include "runtime/chip_profile.h"
#include "runtime/devices.h"
#include "runtime/program.h"
#include "runtime/run_order.h"

namespace tcim_lite::layers {
namespace {

using Clock = std::chrono::steady_clock;

enum class Mode { Off, Virtual, Realtime };

// The clock that is on.
struct Current {
  std::mutex mutex;
  Mode mode = Mode::Off;
  std::shared_ptr<Timeline> timeline;
  Clock::duration lead{0};  // of the continuous time, to the mode's

  Clock::time_point now() const {
    if (mode != Mode::Virtual) return Clock::now() + lead;
    return Clock::time_point(std::chrono::nanoseconds(timeline->now())) + lead;
  }
  void become(Mode next, std::shared_ptr<Timeline> its) {
    const Clock::time_point before = now();
    mode = next;
    timeline = std::move(its);
    lead += before - now();
  }
};

// Never destroyed, as the layers.
Current& current() {
  static auto* const instance = new Current;
  return *instance;
}

void sleep_until(uint64_t steady_ns) {
  std::this_thread::sleep_until(Clock::time_point(std::chrono::nanoseconds(steady_ns)));
}

class ChipClock final : public Observer {
 public:
  explicit ChipClock(Mode mode) : mode_(mode), timeline_(std::make_shared<Timeline>()) {
    const std::lock_guard lock(current().mutex);
    current().become(mode_, timeline_);
    set_run_when_asked(mode_ == Mode::Virtual);
  }
  ~ChipClock() override { ended(); }

  void ended() noexcept override {
    const std::lock_guard lock(current().mutex);
    if (current().timeline != timeline_) return;  // another has followed
    current().become(Mode::Off, nullptr);
    set_run_when_asked(false);
  }

  void begin(const CallEvent& event) override {
    if (mode_ == Mode::Virtual && std::string_view(event.name) == "Module.run") timeline_->submit(event.module);
  }

  void end(const CallEvent& event) override {
    const std::string_view name = event.name;
    if (name == "Module.delete") {
      runs_.forget(event.module);
      return timeline_->forget_module(event.module);
    }
    const auto copy = copy_of(event);
    if (mode_ == Mode::Realtime) {
      if (copy) sleep_until(event.begin_ns + copy->modelled_ns());
      return;
    }
    if (name == "Module.sync" || (name == "Module.run" && event.sync.value_or(false)))
      timeline_->wait_for_stream(event.stream);
    if (name == "reset_device") timeline_->wait_for_devices();
    if (!copy) return;
    event.module != 0 ? timeline_->wait_for_module(event.module) : timeline_->wait_for_devices();
    timeline_->pass(copy->modelled_ns());
  }

  void run_begin(const RunEvent& event) override {
    std::vector<int> devices;
    for (const Device* device : event.program->devices()) devices.push_back(device->id());
    const uint64_t earliest = mode_ == Mode::Realtime ? event.begin_ns : 0;
    timeline_->run(event.module, event.stream, devices, runs_.nanoseconds(event), earliest);
  }

  void run_end(const RunEvent& event) noexcept override {
    if (mode_ != Mode::Realtime || event.failed) return;
    const DeviceWork busy(event.program->devices());
    sleep_until(timeline_->end_of_last_run(event.stream));
  }

 private:
  const Mode mode_;
  const std::shared_ptr<Timeline> timeline_;
  ModelledRuns runs_;
};

Mode mode_of(const std::string& name) {
  if (name == "virtual") return Mode::Virtual;
  if (name == "realtime") return Mode::Realtime;
  fail(ErrorCode::Argument, "TCIM_LITE_CLOCK='", name, "': expected off, virtual or realtime");
}

std::shared_ptr<Timeline> need_virtual() {
  auto timeline = virtual_timeline();
  if (timeline == nullptr)
    fail(ErrorCode::State, "the clock is ", clock_mode(), "; set TCIM_LITE_CLOCK=virtual or enable the layer clock");
  return timeline;
}

}  // namespace

std::shared_ptr<Observer> make_clock(const Options& options) {
  check_options("clock", options, {"mode"});
  const Mode mode = mode_of(setting(options, "mode", "TCIM_LITE_CLOCK", "virtual"));
  chip_profile();  // an invalid one is an error of this call
  return std::make_shared<ChipClock>(mode);
}

bool clock_wanted() {
  const auto mode = env_text("TCIM_LITE_CLOCK");
  if (!mode || *mode == "off") return false;
  mode_of(*mode);
  return true;
}

std::string clock_mode() {
  const std::lock_guard lock(current().mutex);
  return current().mode == Mode::Off ? "off" : current().mode == Mode::Virtual ? "virtual" : "realtime";
}

std::shared_ptr<Timeline> virtual_timeline() {
  const std::lock_guard lock(current().mutex);
  return current().mode == Mode::Virtual ? current().timeline : nullptr;
}

Clock::time_point continuous_now() {
  const std::lock_guard lock(current().mutex);
  return current().now();
}

void pass_until(Clock::time_point at) {
  const std::lock_guard lock(current().mutex);
  if (current().mode != Mode::Virtual) return;
  const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(at - current().now());
  if (left.count() > 0) current().timeline->wait_until(current().timeline->now() + uint64_t(left.count()));
}

uint64_t virtual_now_ns() { return need_virtual()->now(); }

void pass_virtual_time(double seconds) {
  if (!(seconds >= 0 && seconds <= 1e9)) fail(ErrorCode::Argument, "seconds=", seconds, ": expected 0 to 1e9");
  need_virtual()->pass(uint64_t(std::llround(seconds * 1e9)));
}

uint64_t modelled_busy_ns(int device) {
  const std::lock_guard lock(current().mutex);
  return current().timeline == nullptr ? 0 : current().timeline->busy_ns(device);
}

}  // namespace tcim_lite::layers
