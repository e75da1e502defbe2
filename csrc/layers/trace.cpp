#include "layers/trace.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "layers/chrome/chrome_trace.h"
#include "layers/trace_text.h"

namespace tcim_lite::layers {
namespace {

int64_t nanoseconds(uint64_t begin, uint64_t end) { return int64_t(end - begin); }

// Of all traces of the process.
std::atomic<uint64_t> lost_lines{0};

// Logs the first lost line, and the number of lost lines when the process exits.
void count_lost_line(const std::string& path, int error) {
  if (lost_lines++ != 0) return;
  std::atexit([] { log(LogLevel::Error, concat("trace: lines lost: ", lost_lines.load())); });
  log(LogLevel::Error,
      concat("trace: '", path, "' cannot be written (", std::strerror(error), "); its lines are lost"));
}

class Trace final : public Observer {
 public:
  Trace(int file, std::string path, TraceFormat format) : file_(file), path_(std::move(path)), format_(format) {}
  ~Trace() override {
    if (file_ != STDERR_FILENO) close(file_);
  }

  void end(const CallEvent& event) override {
    TraceLine line(format_, "call", event.name);
    add_place(line, event.call, event.thread, event.begin_ns);
    line.add("ns", nanoseconds(event.begin_ns, event.end_ns));
    add_handle(line, "module", event.module);
    add_handle(line, "stream", event.stream);
    if (!event.argument.empty()) line.add("argument", event.argument);
    if (event.port) {
      line.add("slot", event.port->name);
      line.add("memory", event.port->memory);
    }
    if (event.self) line.add("self", *event.self);
    if (event.tensor) line.add("tensor", *event.tensor);
    if (event.array != nullptr) {
      line.add("array", concat(name_of(event.array->dtype),
                               to_string(Shape(event.array->shape.begin(), event.array->shape.end()))));
    }
    if (event.dtype) line.add("dtype", name_of(*event.dtype));
    if (event.sync) line.add("sync", *event.sync);
    if (event.copies) line.add("copies", *event.copies);
    if (event.rounds) line.add("rounds", int64_t(*event.rounds));
    if (event.device_id) line.add("device", int64_t(*event.device_id));
    if (event.result) line.add("result", *event.result);
    if (!event.value.empty()) line.add("value", event.value);
    if (event.loaded) {
      line.add("inputs", int64_t(event.loaded->inputs.size()));
      line.add("outputs", int64_t(event.loaded->outputs.size()));
    }
    if (event.error) line.add("error", event.error_text);
    write_line(line);
  }

  void run_begin(const RunEvent& event) override { write_run("run_begin", event); }
  void run_end(const RunEvent& event) noexcept override {
    try {
      write_run("run_end", event);
    } catch (...) {  // no memory for the line
    }
  }

 private:
  static void add_handle(TraceLine& line, std::string_view key, uint64_t handle) {
    if (handle != 0) line.add(key, int64_t(handle));
  }

  static void add_place(TraceLine& line, uint64_t call, uint64_t thread, uint64_t at) {
    add_handle(line, "call", call);
    line.add("thread", int64_t(thread));
    line.add("at", int64_t(at));
  }

  void write_run(std::string_view kind, const RunEvent& event) {
    TraceLine line(format_, kind, "Module.run");
    const bool over = event.end_ns != 0;
    add_place(line, 0, event.thread, over ? event.end_ns : event.begin_ns);
    if (over) line.add("ns", nanoseconds(event.begin_ns, event.end_ns));
    add_handle(line, "module", event.module);
    add_handle(line, "stream", event.stream);
    if (over) {
      line.add("failed", event.failed);
    } else {
      for (size_t i = 0; i < event.inputs.size(); ++i) {
        line.add(concat("input_", i), event.inputs[i]);
        if (event.lengths[i]) line.add(concat("value_", i), int64_t(*event.lengths[i]));
      }
      for (size_t i = 0; i < event.outputs.size(); ++i) line.add(concat("output_", i), event.outputs[i]);
    }
    write_line(line);
  }

  // One write, so that lines of several threads and processes do not mix. A disk that is full loses lines.
  void write_line(TraceLine& line) const {
    const std::string text = line.finish();
    for (size_t done = 0; done < text.size();) {
      const ssize_t count = write(file_, text.data() + done, text.size() - done);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return count_lost_line(path_, count == 0 ? EIO : errno);
      done += size_t(count);
    }
  }

  const int file_;
  const std::string path_;
  const TraceFormat format_;
};

}  // namespace

std::shared_ptr<Observer> make_trace(const Options& options) {
  check_options("trace", options, {"file", "format", "phases"});
  const std::string path = setting(options, "file", "TCIM_LITE_TRACE_FILE", "");
  const std::string format =
      setting(options, "format", "TCIM_LITE_TRACE_FORMAT", path.ends_with(".json") ? "chrome" : "text");
  if (format == "chrome") {
    if (path.empty())
      fail(ErrorCode::Argument, "trace: the format chrome needs a file; TCIM_LITE_LAYERS=trace:FILE.json");
    return make_chrome_trace(path, setting(options, "phases", "TCIM_LITE_TRACE_PHASES", "none"));
  }
  if (format != "text" && format != "json") {
    fail(ErrorCode::Argument, "trace: TCIM_LITE_TRACE_FORMAT='", format, "': expected text, json or chrome");
  }
  int file = STDERR_FILENO;
  if (!path.empty()) {
    // Not blocking: opening a FIFO nobody reads would hang. Lines are written as to any other file.
    file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666);
    if (file < 0) {
      fail(ErrorCode::Argument, "trace: '", path,
           "' cannot be opened: ", errno == ENXIO ? "no process reads it" : std::strerror(errno));
    }
    fcntl(file, F_SETFL, O_APPEND);
  }
  return std::make_shared<Trace>(file, path, format == "json" ? TraceFormat::Json : TraceFormat::Text);
}

}  // namespace tcim_lite::layers
