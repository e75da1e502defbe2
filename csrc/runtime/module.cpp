#include "runtime/module.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/env.h"
#include "base/error.h"
#include "base/log.h"
#include "runtime/api_call.h"
#include "runtime/devices.h"
#include "runtime/loaded.h"
#include "runtime/run_order.h"

namespace tcim_lite {
namespace {

std::atomic<bool> g_run_when_asked{false};

void describe_options(CallEvent& event, const LoadOptions& options) {
  event.load = &options;
  if (!options.device_ids.empty()) event.device_id = options.device_ids.front();
  event.device_ids = options.device_ids;
}

// The patterns of TCIM_LITE_TAPS, a comma list.
std::vector<std::string> taps_of_environment() {
  std::vector<std::string> patterns;
  const std::string listed = env_text("TCIM_LITE_TAPS").value_or("");
  for (size_t begin = 0; begin < listed.size();) {
    const size_t end = std::min(listed.find(',', begin), listed.size());
    if (end > begin) patterns.push_back(listed.substr(begin, end - begin));
    begin = end + 1;
  }
  return patterns;
}

void check_loadable(const ModelFile& file) {
  const hmm::File& content = file.content();
  if (content.kind == hmm::FileKind::Weights) {
    fail(ErrorCode::Format, file.label(), " holds only weights; load the .hmm that names it");
  }
}

// The devices of the model's parts (C-28). A model for fewer devices than the manager lists takes the first; the others
// must exist too, as a list that names one that does not was meant for another machine.
std::vector<Device*> devices_for(const ModelFile& file, const std::vector<int>& ids) {
  const uint32_t count = file.content().ndevice;
  if (ids.empty())
    fail(ErrorCode::Argument, "load: the list of device ids is empty; name at least one, as in DevManager(0)");
  if (ids.size() < count) {
    fail(ErrorCode::Argument, file.label(), " is a model for ", count, " devices, the device manager lists ",
         ids.size(), "; give it ", count, " ids, as in DevManager([0, 1, ..], \"Xh2HalBackend\")");
  }
  for (auto id = ids.begin(); id != ids.end(); ++id) {
    if (std::find(ids.begin(), id, *id) != id)
      fail(ErrorCode::Argument, file.label(), ": the device manager lists device ", *id,
           " twice; every rank needs a device of its own");
  }
  std::vector<Device*> devices;
  for (uint32_t rank = 0; rank < count; ++rank) devices.push_back(&use_device(ids[rank]));
  for (size_t rank = count; rank < ids.size(); ++rank) visible_device(ids[rank]);
  return devices;
}

}  // namespace

void set_run_when_asked(bool on) noexcept { g_run_when_asked.store(on, std::memory_order_relaxed); }
bool run_when_asked() noexcept { return g_run_when_asked.load(std::memory_order_relaxed); }

std::shared_ptr<Module> Module::load(const std::string& path, const LoadOptions& options) {
  return api_call(
      device_call<"Module.load">,
      [&](CallEvent& event) {
        event.argument = path;
        describe_options(event, options);
      },
      [&] { return load(ModelFile::open(path, options.offset, options.size), options); });
}

std::shared_ptr<Module> Module::load(std::span<const std::byte> bytes, const LoadOptions& options) {
  return api_call(
      device_call<"Module.load">,
      [&](CallEvent& event) {
        event.argument = "(memory)";
        describe_options(event, options);
      },
      [&] { return load(ModelFile::from_bytes(bytes, options.offset, options.size), options); });
}

std::shared_ptr<Module> Module::load(std::shared_ptr<const ModelFile> file, const LoadOptions& options) {
  warn_of_late_variables();
  check_abort(options.should_abort);
  check_loadable(*file);
  LoadOptions settled = options;
  settled.backend = resolve_backend(options.backend);
  if (settled.weights == nullptr) settled.weights = std::make_shared<WeightStore>();
  std::vector<Device*> devices = devices_for(*file, options.device_ids);
  std::string loaded = concat("loaded ", file->label(), " on device");
  for (const Device* device : devices) loaded += " " + std::to_string(device->id());
  const std::vector<std::string> taps = options.taps.value_or(taps_of_environment());
  auto program =
      std::make_shared<Program>(std::move(devices), std::move(file), *settled.weights, options.should_abort, taps);
  check_abort(options.should_abort);
  std::shared_ptr<Module> module(new Module(std::move(program), settled));
  log(LogLevel::Info, loaded);
  return module;
}

Module::Module(std::shared_ptr<Program> program, const LoadOptions& options) {
  const hmm::File& content = program->content();
  std::vector<int> ids;
  for (const Device* device : program->devices()) ids.push_back(device->id());
  loaded_.reset(new Loaded{program, options.weights, options.backend, env_is("TCIM_XH2_USE_SYNC_MODE", "1", "0"),
                           emulated_version(), PortTable(program->parts(), &Graph::inputs, content.split.inputs, ids),
                           PortTable(program->parts(), &Graph::outputs, content.split.outputs, ids),
                           program->device().default_stream(), 0, nullptr});
  Loaded& loaded = *loaded_;
  std::string unknown;
  for (const std::string& name : options.dummies) {
    if (Port* port = loaded.inputs.find(name)) {
      port->is_dummy = true;
    } else {
      unknown += (unknown.empty() ? "'" : ", '") + name + "'";
    }
  }
  if (!unknown.empty()) {
    log(LogLevel::Warn,
        concat(program->file().label(), ": set_dummy_tensors: no input is named ", unknown, "; ignored"));
  }
  for (Port& port : loaded.inputs) {
    if (!port.is_dummy) allocate(port);
  }
  for (Port& port : loaded.outputs) allocate(port);
}

// The memory must be free when the last reference is gone (C-22), so the destructor waits as release does.
Module::~Module() {
  if (loaded_ != nullptr) loaded_->stream->wait(loaded_->ticket);
  if (!observed()) return;
  try {
    api_call(host_call<"Module.delete">, [&](CallEvent& event) { event.module = handle_; }, [] {});
  } catch (...) {  // a destructor cannot report an error
  }
}

Module::Loaded& Module::loaded(const char* who) const {
  if (loaded_ == nullptr)
    fail(ErrorCode::State, who, ": Status.UNINITIALIZED: the module has been released; load it again");
  return *loaded_;
}

// Gives the port memory of its own if it has none yet.
void Module::allocate(Port& port) {
  if (port.buffer != nullptr) return;
  port.buffer = Tensor::allocate(port.info, loaded_->program->file().label(), port.content).buffer();
  port.offset = 0;
  loaded_->bound = nullptr;
}

void Module::run(bool sync, int rounds) {
  return api_call(
      device_call<"Module.run">,
      [&](CallEvent& event) {
        describe(event);
        event.rounds = rounds;
        const std::lock_guard lock(mutex_);
        event.sync = sync || (loaded_ != nullptr && loaded_->always_sync);
      },
      [&] {
        if (rounds < 1) fail(ErrorCode::Argument, "run: rounds=", rounds, " must be at least 1");
        std::shared_ptr<Stream> stream;
        std::shared_ptr<Program> program;
        uint64_t ticket;
        bool raises;
        {
          const std::lock_guard lock(mutex_);
          Loaded& loaded = this->loaded("run");
          loaded.program->raise_error();
          if (loaded.bound == nullptr) {
            for (const Port& port : loaded.inputs) {
              if (port.buffer != nullptr) continue;
              fail(ErrorCode::State, "run error: Status.UNINITIALIZED: input '", port.name(), "' (",
                   to_string(port.info),
                   ") was declared through set_dummy_tensors and has no memory; bind a device tensor with "
                   "set_dev_input or set host data with set_input before run");
            }
            loaded.bound = std::make_shared<BoundRun>(handle_, loaded.program, loaded.inputs, loaded.outputs);
          }
          const bool wait = sync || loaded.always_sync || run_when_asked();
          loaded.bound->begin_use(loaded.stream->handle());
          try {
            ticket = loaded.ticket = loaded.stream->submit(loaded.bound, rounds, !wait);
          } catch (...) {
            loaded.bound->end_use();
            throw;
          }
          if (!wait) return;
          raises = sync || loaded.always_sync;
          stream = loaded.stream;
          program = loaded.program;
        }
        stream->wait(ticket, true);
        if (raises) program->raise_error();
      });
}

void Module::sync() {
  return api_call(
      device_call<"Module.sync">, [&](CallEvent& event) { describe(event); },
      [&] {
        std::shared_ptr<Stream> stream;
        std::shared_ptr<Program> program;
        {
          const std::lock_guard lock(mutex_);
          stream = loaded("sync").stream;
          program = loaded_->program;
        }
        stream->drain(true);
        program->raise_error();
      });
}

void Module::set_stream(std::shared_ptr<Stream> stream) {
  return api_call(
      host_call<"Module.set_stream">, [&](CallEvent& event) { describe(event); },
      [&] {
        {
          const std::lock_guard lock(mutex_);
          const Loaded& loaded = this->loaded("set_stream");
          if (stream == nullptr) stream = loaded.program->device().default_stream();
          if (stream == loaded.stream) return;
        }
        // An executable runs on one stream at a time, and the module's runs stay in order.
        finish_runs("set_stream");
        const std::lock_guard lock(mutex_);
        Loaded& loaded = this->loaded("set_stream");
        loaded.stream->wait(loaded.ticket);
        loaded.stream = std::move(stream);
        loaded.ticket = 0;
      });
}

std::shared_ptr<Program> Module::finish_runs(const char* who) {
  std::shared_ptr<Stream> stream;
  std::shared_ptr<Program> program;
  uint64_t ticket;
  {
    const std::lock_guard lock(mutex_);
    stream = loaded(who).stream;
    program = loaded_->program;
    ticket = loaded_->ticket;
  }
  stream->wait(ticket, true);
  return program;
}

void Module::release() {
  return api_call(
      host_call<"Module.release">, [&](CallEvent& event) { describe(event); },
      [&] {
        std::unique_ptr<Loaded> dropped;
        {
          const std::lock_guard lock(mutex_);
          std::swap(dropped, loaded_);
        }
        if (dropped != nullptr) dropped->stream->wait(dropped->ticket, true);
      });
}

}  // namespace tcim_lite
