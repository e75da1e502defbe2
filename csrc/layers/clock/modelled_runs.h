// The chip's time of each round of a run, modelled (runtime/device_time.h).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "graph/cost.h"
#include "runtime/observer.h"

namespace tcim_lite::layers {

// Thread-safe.
class ModelledRuns {
 public:
  // Of the round, with the lengths that its inputs have, on the devices as they are now.
  uint64_t nanoseconds(const RunEvent& event);
  // Rows of the caches that hold tokens after the round, by slot; none for a graph without caches.
  std::vector<uint64_t> cache_rows(const RunEvent& event);
  // The module is gone.
  void forget(uint64_t module);

 private:
  using Costs = std::vector<GraphCost>;  // by rank
  std::shared_ptr<const Costs> costs_of(const RunEvent& event);

  std::mutex mutex_;
  std::map<uint64_t, std::shared_ptr<const Costs>> costs_;  // by module
};

}  // namespace tcim_lite::layers
