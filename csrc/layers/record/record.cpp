#include "layers/record/record.h"

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <ctime>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/env.h"
#include "base/error.h"
#include "layers/clock/copies.h"
#include "layers/clock/modelled_runs.h"
#include "layers/record/file.h"
#include "layers/record/fingerprint.h"
#include "layers/record/load.h"
#include "layers/record/text.h"
#include "layers/record/values.h"
#include "runtime/device_usage.h"
#include "runtime/module.h"

namespace tcim_lite::layers {
namespace {

// Which values are stored.
struct Keep {
  bool inputs = false;
  bool outputs = false;
  bool states = false;  // and fingerprints of states are made
  bool sites = false;   // the caller's line, which takes Python's lock to find
};

uint64_t steady_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return uint64_t(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

class Record final : public Observer {
 public:
  Record(const std::string& path, Keep keep, std::string meta)
      : keep_(keep), start_ns_(steady_ns()), file_(path, std::move(meta)) {}

  // The file is whole then, whatever other threads are doing.
  void ended() noexcept override { file_.close(); }
  bool is_at(const std::string& path) noexcept { return file_.is_at(path); }

  void end(const CallEvent& event) override {
    RecordText text;
    text.add("call", std::string_view(event.name));
    const auto copy = copy_of(event);
    add_time(text, event.thread, event.begin_ns, event.end_ns, copy ? copy->modelled_ns() : 0);
    if (event.name == std::string_view("Module.delete")) runs_.forget(event.module);
    if (keep_.sites) {
      if (const std::string site = call_site(); !site.empty()) text.add("site", site);
    }
    if (event.module != 0) text.add("module", int64_t(event.module));
    if (event.stream != 0) text.add("stream", int64_t(event.stream));
    if (!event.argument.empty()) text.add("name", event.argument);
    if (event.port && event.port->name != event.argument) text.add("port", event.port->name);
    if (event.index) text.add("index", *event.index);
    if (event.self) text.add("self", *event.self);
    if (event.tensor) text.add("tensor", *event.tensor);
    // Those of a tensor that is read come from earlier calls, unless the program can write there by itself.
    if (event.values != nullptr && !event.self) add_values(text, "array", *event.values, keep_.inputs);
    if (event.handed_out) add_values(text, "array", event.handed_out->view(), keep_.inputs);
    if (event.info) {
      text.add_object("info", [&](RecordText& info) {
        info.add("dtype", name_of(event.info->dtype));
        info.add("shape", event.info->shape);
        info.add("device", int64_t(event.info->device_id));
      });
    }
    if (event.dtype) text.add("dtype", name_of(*event.dtype));
    if (event.start) text.add("start", *event.start);
    if (event.extents) text.add("extents", *event.extents);
    if (event.copies) text.add("copies", *event.copies);
    if (event.sync) text.add("sync", *event.sync);
    if (event.rounds) text.add("rounds", int64_t(*event.rounds));
    if (event.load != nullptr) add_load(text, event);
    if (event.loaded) add_module(text, *event.loaded);
    if (event.result) text.add("result", *event.result);
    const bool already_given = event.handed_out && event.made && event.made->data == event.handed_out->data;
    if (event.made && !event.error && !already_given) add_values(text, "out", event.made->view(), keep_.outputs);
    if (!event.value.empty()) text.add("value", event.value);
    if (event.error) {
      text.add_object("error", [&](RecordText& error) {
        error.add("type", std::string_view(class_of(*event.error)));
        error.add("text", event.error_text);
      });
    }
    file_.add_record(text.finish());
  }

  void run_end(const RunEvent& event) noexcept override {
    try {
      RecordText text;
      text.add("round", next_round(event.module));
      add_time(text, event.thread, event.begin_ns, event.end_ns, event.failed ? 0 : runs_.nanoseconds(event));
      text.add("module", int64_t(event.module));
      text.add("stream", int64_t(event.stream));
      if (event.failed) text.add("failed", true);
      if (keep_.states && !event.failed) add_states(text, event);
      file_.add_record(text.finish());
    } catch (...) {  // no memory for the record
    }
  }

 private:
  struct State {
    size_t input;
    std::string name;
    TensorFacts looks;  // over all devices
  };

  // By both clocks: the host's, which is measured, and the chip's, where it would take time.
  void add_time(RecordText& text, uint64_t thread, uint64_t begin_ns, uint64_t end_ns, uint64_t modelled_ns) const {
    text.add("thread", int64_t(thread));
    text.add("at", int64_t(begin_ns - start_ns_));
    text.add("ns", int64_t(end_ns - begin_ns));
    if (modelled_ns != 0) text.add("modelled_ns", int64_t(modelled_ns));
  }

  void add_values(RecordText& text, std::string_view key, const ArrayView& array, bool store) {
    std::vector<std::byte> room;
    add_elements(text, key, array.dtype, Shape(array.shape.begin(), array.shape.end()), elements_of(array, room),
                 store);
  }

  void add_elements(RecordText& text, std::string_view key, DType dtype, Shape shape,
                    std::span<const std::byte> content, bool store) {
    const ValueFacts facts{dtype, std::move(shape), fingerprint(content), only_value(dtype, content)};
    if (store && !facts.value) file_.add_data(content, facts.fingerprint);
    text.add(key, facts);
  }

  void add_module(RecordText& text, const ModuleFacts& facts) {
    std::vector<State> states;
    const auto add_ports = [&](std::string_view key, const std::vector<PortFacts>& ports) {
      text.add_list(key, ports.size(), [&](size_t i, RecordText& port) {
        const Graph& graph = *facts.graph;
        const bool is_state = ports[i].is_input && graph.values[graph.inputs[i]].kind == ValueKind::State;
        port.add("name", ports[i].name);
        port.add("tensor", ports[i].memory);
        if (!is_state) return;
        port.add("state", true);
        states.push_back({i, ports[i].name, ports[i].memory});
      });
    };
    add_ports("inputs", facts.inputs);
    add_ports("outputs", facts.outputs);
    const std::lock_guard lock(mutex_);
    states_[facts.module] = std::move(states);
  }

  int64_t next_round(uint64_t module) {
    const std::lock_guard lock(mutex_);
    return ++rounds_[module];
  }

  // The stream begins nothing else until this returns.
  void add_states(RecordText& text, const RunEvent& event) {
    std::vector<State> states;
    {
      const std::lock_guard lock(mutex_);
      states = states_[event.module];
    }
    if (states.empty()) return;
    std::vector<std::byte> room;
    text.add_list("states", states.size(), [&](size_t i, RecordText& state) {
      const State& each = states[i];
      room.resize(each.looks.span_bytes);
      event.memory[each.input]->read(event.inputs[each.input].offset, room.size(), room.data());
      state.add("name", each.name);
      add_elements(state, "out", each.looks.dtype, each.looks.shape, room, true);
    });
  }

  const Keep keep_;
  const uint64_t start_ns_;
  RecordFile file_;
  ModelledRuns runs_;
  std::mutex mutex_;                               // a leaf: nothing else is taken while it is held
  std::map<uint64_t, std::vector<State>> states_;  // by module
  std::map<uint64_t, int64_t> rounds_;             // by module
};

Keep keep_of(const std::string& data) {
  if (data == "none") return {};
  if (data == "inputs") return {true, false, false};
  if (data == "outputs") return {false, true, false};
  if (data == "all") return {true, true, false};
  if (data == "states") return {true, true, true};
  fail(ErrorCode::Argument, "record: TCIM_LITE_RECORD_DATA='", data,
       "': expected none, inputs, outputs, all or states");
}

std::string meta_text(const std::string& data) {
  RecordText text;
  text.add("recorder", std::string_view("layer"));
  text.add("runtime", version_text());
  text.add("command", command_of(getpid()).substr(0, 4096));
  text.add("time", int64_t(std::time(nullptr)));
  text.add("data", data);
  text.add_object("environment", [](RecordText& variables) {
    for (const char* name : {"TCIM_LITE_DEVICE", "TCIM_LITE_EMULATE", "TCIM_LITE_ISA", "TCIM_LITE_NUMERICS",
                             "TCIM_LITE_STRICT", "TCIM_LITE_TAPS", "TCIM_LITE_THREADS"}) {
      if (const auto value = env_text(name)) variables.add(name, *value);
    }
  });
  return text.finish();
}

// Recordings that end with the process. Never destroyed, as the layers.
struct Open {
  std::mutex mutex;
  std::vector<std::weak_ptr<Record>> records;
};

Open& open_records() {
  static auto* const instance = new Open;
  return *instance;
}

// All, or those into `path`.
void end_records(const std::string* path = nullptr) {
  const std::lock_guard lock(open_records().mutex);
  for (const auto& each : open_records().records) {
    const auto still = each.lock();
    if (still != nullptr && (path == nullptr || still->is_at(*path))) still->ended();
  }
}

void end_at_exit(const std::shared_ptr<Record>& record) {
  static const int registered = std::atexit([] { end_records(); });
  (void)registered;
  const std::lock_guard lock(open_records().mutex);
  std::erase_if(open_records().records, [](const auto& each) { return each.expired(); });
  open_records().records.push_back(record);
}

}  // namespace

std::shared_ptr<Observer> make_record(const Options& options) {
  check_options("record", options, {"file", "data"});
  const std::string data = setting(options, "data", "TCIM_LITE_RECORD_DATA", "inputs");
  Keep keep = keep_of(data);
  keep.sites = env_is("TCIM_LITE_RECORD_SITES", "1", "0");
  const auto path = options.find("file");
  if (path == options.end() || path->second.empty()) {
    fail(ErrorCode::Argument, "record: no file is given; write TCIM_LITE_LAYERS=record:FILE");
  }
  end_records(&path->second);  // one that this replaces
  auto record = std::make_shared<Record>(path->second, keep, meta_text(data));
  end_at_exit(record);
  return record;
}

}  // namespace tcim_lite::layers
