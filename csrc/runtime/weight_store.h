// The core of a WeightManager: weights shared by content between the modules loaded with it. Thread-safe.
//
// The store only refers to weights. The modules own them, so a weight is freed with the last module that uses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "backends/backend.h"
#include "base/no_copy.h"
#include "runtime/abort.h"
#include "runtime/ledger.h"
#include "runtime/model_file.h"
#include "runtime/python_call.h"

namespace tcim_lite {

class Device;

// A weight on a device: used where it lies in the mapped file, which it keeps open, or placed by the backend.
class Weight : public NoCopy {
 public:
  Weight(Device& device, std::shared_ptr<const ModelFile> file, uint32_t index);

  const hmm::WeightEntry& entry() const noexcept { return file_->content().weights[index_]; }
  std::span<const std::byte> bytes() const noexcept { return file_->bytes_of(entry()); }
  const std::shared_ptr<const ModelFile>& file() const noexcept { return file_; }
  const std::shared_ptr<DeviceMemory>& placed() const noexcept { return placed_; }

  // Of the bytes on the device, which differ from those of the file where the backend has placed them.
  uint64_t device_bytes() const noexcept { return placed_ == nullptr ? bytes().size() : placed_->bytes(); }
  // Turns over one bit on the device, for every module that shares the weight there; the file stays as it is. A second
  // time restores it. False: the system does not let it.
  bool flip_bit(uint64_t byte, int bit) const;

 private:
  Device& device_;
  std::shared_ptr<const ModelFile> file_;
  uint32_t index_;
  Charge charge_;
  std::shared_ptr<DeviceMemory> placed_;  // null: used where it lies
};

using Weights = std::vector<std::shared_ptr<const Weight>>;  // [index in the weight table]; null: not used

class WeightStore {
 public:
  WeightStore();
  uint64_t handle() const noexcept { return handle_; }  // for listeners (observer.h)

  // The weights that one of the model's graphs uses, verified. Throws Error(Format) when a sibling or a weight is
  // missing, belongs to another model or is damaged, Error(Device) when the device is full, Error(Aborted).
  Weights acquire(Device& device, const std::shared_ptr<const ModelFile>& model, const Graph& graph,
                  const ShouldAbort& should_abort = {});
  // Forgets weights that no module uses. What a module uses stays, and stays shared with later loads.
  void release();

  static constexpr auto python_calls() { return std::tuple(python_call("release", &WeightStore::release)); }

 private:
  using Key = std::pair<int, hmm::Hash>;  // device id, content

  void forget_unused();

  const uint64_t handle_;
  std::mutex mutex_;
  std::map<Key, std::weak_ptr<const Weight>> weights_;
};

}  // namespace tcim_lite
