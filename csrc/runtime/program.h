// What a loaded model runs: the executable with its weights on its devices, and the error of queued work that nobody
// has seen yet.
// Shared by the module and the runs it queued, so dropping a module never pulls memory from under a run.
#pragma once

#include <atomic>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "base/no_copy.h"
#include "runtime/ledger.h"
#include "runtime/model_file.h"
#include "runtime/observer.h"
#include "runtime/port.h"
#include "runtime/stream.h"
#include "runtime/uses.h"
#include "runtime/weight_store.h"

namespace tcim_lite {

class Device;

class Program : public NoCopy {
 public:
  // Takes the weights of every part from `store`. One device for each part, in rank order. `taps`: see graph/taps.h.
  Program(std::vector<Device*> devices, std::shared_ptr<const ModelFile> file, WeightStore& store,
          const ShouldAbort& should_abort, std::span<const std::string> taps = {});

  // The device of rank 0, whose default stream the model runs on.
  Device& device() const noexcept { return *devices_.front(); }
  const std::vector<Device*>& devices() const noexcept { return devices_; }
  const hmm::File& content() const noexcept { return file_->content(); }
  const ModelFile& file() const noexcept { return *file_; }
  // The graphs that run, by rank: those of the file, or one with taps.
  std::span<const Graph> parts() const noexcept;
  Executable& executable() noexcept { return *executable_; }
  // ModelFile::change() of the model and of the files that its weights lie in, where it is not empty.
  std::vector<std::string> changed_files() const;

  // By rank.
  const std::vector<Weights>& weights() const noexcept { return weights_; }

  // Keeps the first error until it is raised. Thread-safe.
  void keep_error(std::exception_ptr error) noexcept;
  void raise_error();
  void drop_error() noexcept;

 private:
  const std::vector<Device*> devices_;  // by rank
  std::shared_ptr<const ModelFile> file_;
  const std::shared_ptr<const Graph> tapped_;  // null: without taps
  std::vector<Weights> weights_;               // by rank
  std::set<std::shared_ptr<const ModelFile>> files_;
  std::unique_ptr<Executable> executable_;
  std::vector<Charge> scratch_;  // by rank
  std::atomic<bool> failed_{false};
  std::mutex error_mutex_;
  std::exception_ptr error_;
};

// The bindings of a module at the time of a run. Made again only when a binding has changed.
class BoundRun : public Work {
 public:
  // Every port has a buffer. `module` is the handle that listeners know.
  BoundRun(uint64_t module, std::shared_ptr<Program> program, PortTable& inputs, PortTable& outputs);
  BoundRun(const BoundRun&) = delete;
  BoundRun& operator=(const BoundRun&) = delete;
  ~BoundRun() override { uses_->retire(); }

  // Marks the buffers as used by a run queued on `stream`; finish() ends that, or end_use() if the run is not queued
  // after all.
  void begin_use(uint64_t stream) noexcept;
  void end_use() noexcept { uses_->end(); }
  Round round() noexcept override;
  void finish(bool dropped) noexcept override;

 private:
  struct Sink {
    Tensor from;
    Tensor to;
  };
  void fill_sinks();
  void compute();
  RunEvent describe() const;

  const uint64_t module_;
  std::atomic<uint64_t> stream_{0};  // handle
  std::shared_ptr<Program> program_;
  std::vector<PartMemory> memory_;                // by rank
  std::vector<std::shared_ptr<Buffer>> buffers_;  // of the inputs, the outputs, and the sinks
  std::vector<uint64_t> offsets_;                 // of the first two, bytes
  const std::shared_ptr<Uses> uses_;              // of the buffers
  std::vector<Sink> sinks_;
  bool failed_ = false;  // the run in progress
};

}  // namespace tcim_lite
