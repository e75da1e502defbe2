// A loaded model: its ports, their bindings, and the stream it runs on.
//
// A host array is copied, at call time, into whatever an input is bound to; a device tensor re-binds the input. `run`
// queues; reads and host writes wait for queued runs that use the same memory. An error of queued work is raised once,
// at the next run, sync or output; a tensor does not know of it. Calls may come from several threads; each is atomic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "runtime/abort.h"
#include "runtime/observer.h"
#include "runtime/port.h"
#include "runtime/program.h"
#include "runtime/python_call.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"
#include "runtime/weight_store.h"

namespace tcim_lite {

struct LoadOptions {
  std::vector<int> device_ids{0};                     // by rank; as many are used as the model is for
  std::string backend;                                // "": the default
  std::shared_ptr<WeightStore> weights;               // null: private
  std::vector<std::string> dummies;                   // inputs without memory of their own
  uint64_t offset = 0;                                // of the model in the file or buffer
  uint64_t size = 0;                                  // 0: to the end
  ShouldAbort should_abort = {};                      // asked several times during a load
  std::optional<std::vector<std::string>> taps = {};  // patterns (graph/taps.h); not given: those of TCIM_LITE_TAPS
};

class Module;
void describe_result(CallEvent& event, const std::shared_ptr<Module>& module);

class Module {
 public:
  static std::shared_ptr<Module> load(const std::string& path, const LoadOptions& options);
  static std::shared_ptr<Module> load(std::span<const std::byte> bytes, const LoadOptions& options);
  ~Module();

  uint64_t handle() const noexcept { return handle_; }

  size_t num_inputs() const;
  size_t num_outputs() const;
  std::string input_name(int64_t index) const;
  std::string output_name(int64_t index) const;
  TensorInfo input_info(std::string_view name) const;
  TensorInfo output_info(std::string_view name) const;
  std::string custom_msg() const;
  int core_number() const;
  std::string backend_name() const;
  std::string model_version() const;
  // Extension: the devices it runs on, by rank: of those given to the load, as many as the model is for.
  std::vector<int> device_ids() const;

  // Extension: the names of the taps, in execution order. The calls for one output take them, the counts and indices
  // of outputs leave them out.
  std::vector<std::string> taps() const;

  // Copies and converts (13.2); any shape with the right element count. Allocates the memory of an unbound dummy.
  void set_input(std::string_view name, const ArrayView& array);
  // Host tensor: copies. Device tensor: binds.
  void set_input(std::string_view name, const Tensor& tensor);
  void set_dev_input(std::string_view name, const Tensor& tensor);
  // A live alias of what the input uses; without storage for an unbound dummy.
  Tensor input(std::string_view name) const;

  // A fresh host copy, in the layout and dtype of `info` if given.
  Tensor output(std::string_view name, const std::optional<TensorInfo>& info = std::nullopt);
  // The same into `target`: equal element counts, any dtype and strides.
  void output_to(std::string_view name, const Tensor& target);
  Tensor dev_output(std::string_view name) const;
  void set_dev_output(std::string_view name, const Tensor& tensor);
  // Device tensor: binds. Host tensor: filled when a run completes.
  void set_output(std::string_view name, const Tensor& tensor);

  void run(bool sync = false, int rounds = 1);
  void sync();
  // Null: the device's default stream.
  void set_stream(std::shared_ptr<Stream> stream);

  // Extras for profiles; both wait for the module's runs. Times the steps of later runs from zero, or leaves that.
  void time_steps(bool on);
  // (op, form, seconds) since then, in the order in which the steps run.
  std::vector<std::tuple<std::string, std::string, double>> step_times();

  // Frees the module's memory; everything but a second release then throws Error(State).
  void release();

  static constexpr auto python_calls() {
    return std::tuple(
        python_call("input_name", &Module::input_name, "index"),
        python_call("output_name", &Module::output_name, "index"),
        python_call("input_info", &Module::input_info, "name"),
        python_call("output_info", &Module::output_info, "name"), python_call("device_ids", &Module::device_ids),
        python_call("set_dev_input", &Module::set_dev_input, "name", "tensor"),
        python_call("input", &Module::input, "name"), python_call("dev_output", &Module::dev_output, "name"),
        python_call("set_dev_output", &Module::set_dev_output, "name", "tensor"),
        python_call("set_output", &Module::set_output, "name", "tensor"), python_call("taps", &Module::taps),
        python_call("sync", &Module::sync), python_call("set_stream", &Module::set_stream, "stream"),
        python_call("release", &Module::release), python_call("time_steps", &Module::time_steps, "on"),
        python_call("step_times", &Module::step_times));
  }

 private:
  struct Loaded;

  Module(std::shared_ptr<Program> program, const LoadOptions& options);
  static std::shared_ptr<Module> load(std::shared_ptr<const ModelFile> file, const LoadOptions& options);

  Loaded& loaded(const char* who) const;
  template <typename Read>
  auto fact(const KnownCall& call, const Read& read, std::optional<int64_t> index = std::nullopt) const;
  template <typename Read>
  auto fact_of(const KnownCall& call, Side side, std::string_view name, const Read& read) const;
  Port& port(Side side, const char* who, std::string_view name) const;
  void bind(const KnownCall& call, Side side, const char* who, std::string_view name, const Tensor& tensor);
  void bind(const char* who, Port& port, const Tensor& tensor);
  void allocate(Port& port);
  // The port that `find` finds, once no queued run uses its memory. Waits as finish_runs, without the lock, for runs
  // that are queued by now, and with it for those that other threads queue meanwhile.
  template <typename Find>
  Port& idle_port(std::unique_lock<std::mutex>& lock, const Find& find);
  // Waits for the module's own runs, executing queued ones on this thread. Interruptible, so with no lock held.
  std::shared_ptr<Program> finish_runs(const char* who);

  // For listeners: what is there, or what a name stands for. They leave out what cannot be found.
  friend void describe_result(CallEvent& event, const std::shared_ptr<Module>& module);
  void describe(CallEvent& event) const;
  void describe(CallEvent& event, Side side, std::string_view name) const;

  const uint64_t handle_ = next_handle();
  mutable std::mutex mutex_;
  std::unique_ptr<Loaded> loaded_;
};

// Text for load_model_info: name, version, inputs and outputs, custom_msg. Loads no weights.
std::string describe_model(const std::string& path);

// First line the emulated API version, second the emulator's own.
std::string version_text();

}  // namespace tcim_lite
