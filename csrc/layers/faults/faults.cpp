#include "layers/faults/faults.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <mutex>
#include <thread>

#include "base/env.h"
#include "base/error.h"
#include "base/named_file.h"
#include "layers/clock/clock.h"
#include "layers/faults/bits.h"
#include "layers/faults/devices.h"
#include "layers/faults/fired.h"
#include "layers/faults/rules.h"
#include "runtime/devices.h"
#include "runtime/stream.h"

namespace tcim_lite::layers {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kMaxRuleBytes = 1 << 20;

// What a rule is compared with: a call or a round of a run.
struct Moment {
  std::string_view call;
  std::vector<int> devices;
  std::string model;  // path or label
  std::shared_ptr<Program> program;
  const RunEvent* run = nullptr;
};

// The call that a program made.
std::string_view shown(const Moment& moment) { return moment.run == nullptr ? moment.call : "Module.run"; }

enum class Stage { Ready, Before, After };

// Slow devices and changed results show after the work.
Stage stage_of(const FaultRule& rule) {
  const bool executes = rule.call == kExecute;
  if (rule.kind == FaultKind::Hang && executes) return Stage::Ready;
  if (rule.kind == FaultKind::Slow && executes) return Stage::After;
  const bool flips_after = rule.kind == FaultKind::BitFlip && (!executes || rule.bit_in == BitIn::Output);
  return flips_after ? Stage::After : Stage::Before;
}

void add_device(std::vector<int>& devices, int device) {
  if (device >= 0 && std::find(devices.begin(), devices.end(), device) == devices.end()) devices.push_back(device);
}

std::vector<int> devices_of(const CallEvent& event) {
  std::vector<int> devices = event.device_ids;
  if (event.program != nullptr) {
    for (const Device* device : event.program->devices()) add_device(devices, device->id());
  }
  if (event.device_id) add_device(devices, *event.device_id);
  if (event.self) add_device(devices, event.self->device_id);
  if (event.tensor) add_device(devices, event.tensor->device_id);
  return devices;
}

void wait(double seconds) {
  if (const auto timeline = virtual_timeline()) return timeline->pass(uint64_t(std::llround(seconds * 1e9)));
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

class Faults final : public Observer {
 public:
  explicit Faults(std::vector<FaultRule> rules) : rules_(std::move(rules)), counts_(rules_.size()) {}

  void begin(const CallEvent& event) override {
    start_again_in_a_child();
    const std::string_view name = event.name;
    if (name == "reset_device") return devices_.begin_reset(*event.device_id);
    devices_.cool_down();
    if (!event.needs_device) return;
    const Moment moment{name, devices_of(event), label_of(event), event.program};
    refuse_if_broken(moment);
    apply(moment, Stage::Before);
  }

  void end(const CallEvent& event) override {
    const std::string_view name = event.name;
    if (name == "reset_device") return devices_.end_reset(*event.device_id, !event.error);
    if (name == "Module.load" && !event.error)
      apply({name, devices_of(event), label_of(event), event.program}, Stage::After);
  }

  // Limits and flipped bits; those that a call under way still makes last until it returns.
  void ended() noexcept override { devices_.forget(); }

  // A hang is no wait of a thread that may be wanted elsewhere: one that waits for the run can be interrupted.
  bool run_ready(const RunEvent& event) override {
    start_again_in_a_child();
    const Moment moment = moment_of(event);
    if (devices_.still_hangs(moment.devices)) return false;
    if (devices_.broken(moment.devices)) return true;
    apply(moment, Stage::Ready);
    return !devices_.still_hangs(moment.devices);
  }

  void run_begin(const RunEvent& event) override {
    devices_.cool_down();
    const Moment moment = moment_of(event);
    refuse_if_broken(moment);
    apply(moment, Stage::Before);
  }

  void run_end(const RunEvent& event) noexcept override {
    if (event.failed) return;
    try {
      const Moment moment = moment_of(event);
      apply(moment, Stage::After);
      // A virtual clock goes by the limit itself.
      if (virtual_timeline() == nullptr) slow_down(moment, devices_.slowdown(moment.devices));
    } catch (...) {  // no memory: the run is as it would be without the layer
    }
  }

 private:
  struct Count {
    uint64_t seen = 0, fired = 0;
  };

  static std::string label_of(const CallEvent& event) {
    return event.program == nullptr ? event.argument : event.program->file().label();
  }

  static Moment moment_of(const RunEvent& event) {
    Moment moment{kExecute, {}, event.program->file().label(), event.program, &event};
    for (const Device* device : event.program->devices()) moment.devices.push_back(device->id());
    return moment;
  }

  // Another process has a card that works, and counts from the beginning.
  void start_again_in_a_child() {
    if (process_.load(std::memory_order_relaxed) == getpid()) return;
    const std::lock_guard lock(mutex_);
    if (process_.load(std::memory_order_relaxed) == getpid()) return;
    counts_.assign(rules_.size(), {});
    begin_ = continuous_now();
    devices_.forget();
    process_.store(getpid(), std::memory_order_relaxed);
  }

  void refuse_if_broken(const Moment& moment) {
    const auto why = devices_.broken(moment.devices);
    if (!why) return;
    if (moment.program != nullptr && moment.run == nullptr) devices_.forget_errors(moment.devices, moment.program);
    fail(ErrorCode::Device, shown(moment), " error: ", *why);
  }

  bool is_due(const FaultRule& rule, const Moment& moment, uint64_t& count) {
    if (rule.call != moment.call || moment.devices.empty()) return false;
    if (rule.device && std::find(moment.devices.begin(), moment.devices.end(), *rule.device) == moment.devices.end())
      return false;
    if (moment.model.find(rule.model) == std::string::npos) return false;
    if (rule.kind == FaultKind::BitFlip && !has_tensor(*moment.program, rule)) return false;
    const std::lock_guard lock(mutex_);
    const double now = std::chrono::duration<double>(continuous_now() - begin_).count();
    if (now < rule.after_s || (rule.before_s != 0 && now >= rule.before_s)) return false;
    Count& counted = counts_[rule.number - 1];
    if (++counted.seen < rule.nth || (rule.times != 0 && counted.fired >= rule.times)) return false;
    if (double(draw(rule.seed, counted.seen) >> 11) * 0x1p-53 >= rule.probability) return false;
    count = ++counted.fired;
    return true;
  }

  void apply(const Moment& moment, Stage stage) {
    for (const FaultRule& rule : rules_) {
      uint64_t count = 0;
      if (stage_of(rule) == stage && is_due(rule, moment, count)) act(rule, moment, count);
    }
  }

  // Throws what the call is to fail with.
  void act(const FaultRule& rule, const Moment& moment, uint64_t count) {
    const int device = rule.device.value_or(moment.devices.front());
    const std::string injected = concat(" (injected by ", rule.place, ")");
    const std::string way_out = concat("; reset it (ipu_reset) or start a new process", injected);
    const auto refuse = [&](ErrorCode code, const std::string& text) {
      note_fired(rule, device, text);
      fail(code, shown(moment), " error: ", text);
    };
    switch (rule.kind) {
      case FaultKind::DeviceLost: {
        const std::string why = concat("device ", device, " is lost", way_out);
        devices_.lose(device, why);
        return refuse(ErrorCode::Device, why);
      }
      case FaultKind::Hang: {
        const std::string why =
            concat("device ", device, " did not answer within ", rule.timeout_s, " s (ret:110)", way_out);
        note_fired(rule, device, why);
        devices_.hang(device, rule.timeout_s, why);
        if (moment.run != nullptr) return;
        while (devices_.still_hangs(std::span(&device, 1))) {
          if (interrupted()) throw Interrupted();
        }
        fail(ErrorCode::Device, shown(moment), " error: ", why);
      }
      case FaultKind::OutOfMemory:
        return refuse(ErrorCode::Device,
                      concat("device ", device, " is out of memory; free modules or tensors", injected));
      case FaultKind::LoadFailure:
        return refuse(ErrorCode::Format,
                      concat("'", moment.model, "' is damaged: a checksum differs; copy it again", injected));
      case FaultKind::Firmware:
        return refuse(ErrorCode::Format, concat("'", moment.model, "' needs newer firmware than v", rule.version,
                                                " of device ", device, "; update the firmware", injected));
      case FaultKind::Slow:
        note_fired(rule, device, concat(shown(moment), " takes longer", injected));
        if (rule.delay_s != 0) moment.run == nullptr ? wait(rule.delay_s) : work(moment, rule.delay_s);
        if (moment.run != nullptr) slow_down(moment, rule.factor);
        return;
      case FaultKind::Throttle:
        devices_.throttle(device, rule.clock_mhz, rule.lasts_s);
        return note_fired(rule, device, concat("device ", device, " throttles to ", rule.clock_mhz, " MHz", injected));
      case FaultKind::BitFlip:
        return note_fired(rule, device, flip_bit(rule, count, *moment.program, moment.run, devices_) + injected);
      case FaultKind::Reset:
        devices_.reset(device);
        return refuse(ErrorCode::Device, concat("device ", device, " was reset meanwhile; run again", injected));
      case FaultKind::FlakySync:
        return refuse(ErrorCode::Device, concat("the wait for device ", device, " failed; sync again", injected));
    }
  }

  // The devices count as busy meanwhile.
  static void work(const Moment& moment, double seconds) {
    if (const auto timeline = virtual_timeline())
      return timeline->delay(moment.run->stream, uint64_t(std::llround(seconds * 1e9)));
    const DeviceWork busy(moment.program->devices());
    wait(seconds);
  }

  static void slow_down(const Moment& moment, double factor) {
    if (factor <= 1) return;
    const RunEvent& run = *moment.run;
    if (const auto timeline = virtual_timeline()) return timeline->stretch(run.stream, factor);
    work(moment, (factor - 1) * 1e-9 * double(run.end_ns - run.begin_ns));
  }

  const std::vector<FaultRule> rules_;
  std::atomic<pid_t> process_{getpid()};
  std::mutex mutex_;  // of the two below
  std::vector<Count> counts_;
  Clock::time_point begin_ = continuous_now();
  FaultyDevices devices_;
};

}  // namespace

std::shared_ptr<Observer> make_faults(const Options& options) {
  check_options("faults", options, {"file", "rules"});
  const auto text = options.find("rules");
  if (text != options.end()) {
    if (options.count("file") != 0) fail(ErrorCode::Argument, "faults: got both file and rules, expected one of them");
    take_fired_faults();
    return std::make_shared<Faults>(read_rules(text->second, "rules"));
  }
  const std::string path = setting(options, "file", "TCIM_LITE_FAULTS", "");
  if (path.empty()) fail(ErrorCode::Argument, "faults: no rules are given; set TCIM_LITE_FAULTS to a file of them");
  const std::string what = options.count("file") != 0 ? concat("faults: the file of rules '", path, "'")
                                                      : concat("TCIM_LITE_FAULTS='", path, "': the file of rules");
  auto rules = read_rules(read_named_file(path, kMaxRuleBytes, ErrorCode::Argument, what), path);
  take_fired_faults();
  return std::make_shared<Faults>(std::move(rules));
}

bool faults_wanted() { return env_text("TCIM_LITE_FAULTS").has_value(); }

}  // namespace tcim_lite::layers
