#include "layers/chrome/chrome_trace.h"

#include <unistd.h>

#include <algorithm>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "layers/chrome/event_text.h"
#include "layers/chrome/trace_file.h"
#include "layers/clock/copies.h"
#include "layers/clock/modelled_runs.h"
#include "layers/clock/timeline.h"
#include "runtime/device_usage.h"
#include "runtime/devices.h"
#include "runtime/program.h"

namespace tcim_lite::layers {
namespace {

enum class Phases { None, Layers, Ops };

constexpr size_t kMostWaiting = 1 << 16;  // calls of a module whose runs have not begun

std::string file_name(std::string_view path) { return std::string(path.substr(path.rfind('/') + 1)); }

// "layers.3" of a step that makes "layers.3.attn.mix"; else the whole name, or the op's where it makes none.
std::string layer_of(const StepSpan& step) {
  if (step.value.empty()) return step.name.op;
  return step.value.starts_with("layers.") ? step.value.substr(0, step.value.find('.', 7)) : step.value;
}

class ChromeTrace final : public Observer {
 public:
  ChromeTrace(const std::string& path, Phases phases) : file_(path), phases_(phases) {}

  void begin(const CallEvent& event) override {
    if (std::string_view(event.name) != "Module.run") return;
    const std::lock_guard lock(mutex_);
    start_again_in_a_child();
    auto& waiting = waiting_[event.module];
    if (waiting.size() < kMostWaiting)
      waiting.push_back({event.call, event.thread, event.begin_ns, event.rounds.value_or(1)});
  }

  void end(const CallEvent& event) override {
    const std::lock_guard lock(mutex_);
    start_again_in_a_child();
    EventText text = fresh_text();
    const Lane lane{event.thread};
    name_lane(text, lane, event.thread == uint64_t(getpid()) ? "main thread" : concat("thread ", event.thread),
              event.thread);
    Arguments arguments;
    if (event.module != 0) arguments.add("module", event.module);
    if (!event.argument.empty()) arguments.add("argument", event.argument);
    if (event.rounds) arguments.add("rounds", uint64_t(*event.rounds));
    if (event.error) arguments.add("error", event.error_text);
    const auto copy = copy_of(event);
    if (copy) arguments.add("bytes", copy->bytes);
    text.slice(lane, event.name, event.error ? "call,error" : "call", event.begin_ns, event.end_ns, arguments);
    if (copy) add_copy(text, event, *copy);
    note_devices(event);
    add_memory(text, event.end_ns);
    if (event.error) forget_call(event);
    if (std::string_view(event.name) == "Module.delete") forget_module(event.module);
    file_.append(text.text());
  }

  void run_begin(const RunEvent& event) override {
    if (phases_ == Phases::None) return;
    const std::lock_guard lock(mutex_);
    if (timed_.insert(event.module).second) event.program->executable().time_steps(true);
  }

  void run_end(const RunEvent& event) noexcept override {
    try {
      write_run(event);
    } catch (...) {  // no memory for the text
    }
  }

 private:
  struct Call {
    uint64_t call, thread, begin_ns;
    int rounds;
  };

  EventText fresh_text() {
    const int process = getpid();
    EventText text(process);
    if (!std::exchange(process_named_, true)) text.process_name(command_of(getpid()).substr(0, 200));
    return text;
  }

  // Its calls come from its own threads, and it is a process of its own in the picture.
  void start_again_in_a_child() {
    if (std::exchange(process_, getpid()) == getpid()) return;
    process_named_ = false;
    named_.clear();
    waiting_.clear();
    memory_.clear();
  }

  void name_lane(EventText& text, Lane lane, const std::string& name, uint64_t order) {
    if (named_.insert(lane.tid).second) text.lane_name(lane, name, order);
  }

  void write_run(const RunEvent& event) {
    const uint64_t modelled = runs_.nanoseconds(event);
    const std::string label = file_name(event.program->file().label());
    std::vector<StepSpan> steps;
    if (phases_ != Phases::None) steps = event.program->executable().last_steps();
    const std::lock_guard lock(mutex_);
    start_again_in_a_child();
    EventText text = fresh_text();
    const Lane lane = stream_lane(event.stream);
    name_lane(text, lane, concat("stream ", event.stream), lane.tid);
    Arguments arguments;
    arguments.add("module", event.module).add_ms("modelled_ms", modelled);
    if (event.failed) arguments.add("error", "failed");
    text.slice(lane, label, "run", event.begin_ns, event.end_ns, arguments);
    add_phases(text, lane, event, steps);
    add_flow(text, lane, event);
    add_modelled(text, event, label, modelled);
    if (!event.failed) add_cache_rows(text, event, label);
    file_.append(text.text());
  }

  void add_phases(EventText& text, Lane lane, const RunEvent& event, const std::vector<StepSpan>& steps) const {
    if (event.failed) return;
    for (size_t first = 0; first < steps.size() && phases_ != Phases::None;) {
      const std::string layer = layer_of(steps[first]);
      size_t last = first;
      while (last + 1 < steps.size() && layer_of(steps[last + 1]) == layer) ++last;
      text.slice(lane, layer, "layer", steps[first].begin_ns, steps[last].end_ns, {});
      first = last + 1;
    }
    if (phases_ != Phases::Ops) return;
    for (const StepSpan& step : steps) {
      Arguments arguments;
      arguments.add("value", step.value);
      const std::string name = step.name.form.empty() ? step.name.op : step.name.op + " " + step.name.form;
      text.slice(lane, name, "op", step.begin_ns, step.end_ns, arguments);
    }
  }

  // From the call that asked for the round. A call of several rounds has one arrow, to the first.
  void add_flow(EventText& text, Lane lane, const RunEvent& event) {
    auto& waiting = waiting_[event.module];
    if (waiting.empty()) return;
    Call& call = waiting.front();
    // A nanosecond later: a slice that begins with its arrow may be read after it.
    if (call.thread != 0) text.flow(call.call, Lane{call.thread}, call.begin_ns + 1, lane, event.begin_ns + 1);
    call.thread = 0;
    if (--call.rounds <= 0 || event.failed) waiting.pop_front();
  }

  void add_modelled(EventText& text, const RunEvent& event, const std::string& label, uint64_t modelled) {
    std::vector<int> devices;
    for (const Device* device : event.program->devices()) devices.push_back(device->id());
    const uint64_t end = chip_.run(event.module, event.stream, devices, modelled, event.begin_ns);
    for (const int device : devices) {
      devices_.insert(device);
      const Lane lane = device_lane(device);
      name_lane(text, lane, concat("device ", device, " (modelled)"), lane.tid);
      text.slice(lane, label, "modelled", end - modelled, end, Arguments().add("module", event.module));
    }
  }

  void add_copy(EventText& text, const CallEvent& event, const CopyMade& copy) {
    name_lane(text, kLinkLane, "PCIe (modelled)", kLinkLane.tid);
    const uint64_t begin = std::max(event.begin_ns, link_free_);
    link_free_ = begin + copy.link_ns;
    text.slice(kLinkLane, copy.to == CopyTo::Host ? "to host" : "to device", "modelled", begin, link_free_,
               Arguments().add("bytes", copy.bytes).add("call", event.name));
  }

  void add_cache_rows(EventText& text, const RunEvent& event, const std::string& label) {
    Arguments series;
    const std::vector<uint64_t> rows = runs_.cache_rows(event);
    for (size_t slot = 0; slot < rows.size(); ++slot) series.add(concat("slot ", slot), rows[slot]);
    if (!rows.empty()) text.counter(concat("cache rows live, ", label, " ", event.module), event.end_ns, series);
  }

  void note_devices(const CallEvent& event) {
    devices_.insert(event.device_ids.begin(), event.device_ids.end());
    if (event.device_id && *event.device_id >= 0) devices_.insert(*event.device_id);
  }

  // A holder that is gone stays, with 0.
  void add_memory(EventText& text, uint64_t at) {
    for (const int id : devices_) {
      Device* const device = find_device(id);
      if (device == nullptr) continue;
      Memory& known = memory_[id];
      if (known.total == device->memory_used()) continue;
      known.total = device->memory_used();
      for (auto& [holder, bytes] : known.holders) bytes = 0;
      for (const auto& [bytes, holder] : device->ledger().held()) known.holders[holder] = bytes;
      Arguments series;
      for (const auto& [holder, bytes] : known.holders) series.add(holder, bytes);
      text.counter(concat("memory of device ", id), at, series);
    }
  }

  // It asked for no run after all, or its runs have ended.
  void forget_call(const CallEvent& event) {
    const auto waiting = waiting_.find(event.module);
    if (waiting == waiting_.end()) return;
    std::erase_if(waiting->second, [&](const Call& call) { return call.call == event.call; });
  }

  void forget_module(uint64_t module) {
    waiting_.erase(module);
    timed_.erase(module);
    runs_.forget(module);
    chip_.forget_module(module);
  }

  struct Memory {
    std::optional<uint64_t> total;
    std::map<std::string, uint64_t> holders;
  };

  TraceFile file_;
  const Phases phases_;
  ModelledRuns runs_;
  Timeline chip_;  // in the steady clock
  std::mutex mutex_;
  pid_t process_ = getpid();
  bool process_named_ = false;
  std::set<uint64_t> named_;                      // lanes
  std::map<uint64_t, std::deque<Call>> waiting_;  // by module
  std::set<uint64_t> timed_;                      // modules
  std::set<int> devices_;
  std::map<int, Memory> memory_;
  uint64_t link_free_ = 0;
};

}  // namespace

std::shared_ptr<Observer> make_chrome_trace(const std::string& path, const std::string& phases) {
  if (phases != "none" && phases != "layers" && phases != "ops")
    fail(ErrorCode::Argument, "trace: TCIM_LITE_TRACE_PHASES='", phases, "': expected none, layers or ops");
  return std::make_shared<ChromeTrace>(path, phases == "none"     ? Phases::None
                                             : phases == "layers" ? Phases::Layers
                                                                  : Phases::Ops);
}

}  // namespace tcim_lite::layers
