#include "layers/clock/modelled_runs.h"

#include <algorithm>
#include <cmath>

#include "runtime/device_time.h"
#include "runtime/devices.h"
#include "runtime/program.h"

namespace tcim_lite::layers {
namespace {

// The slowest of the devices. A device that runs something is at its highest clock in every DVFS mode; one that
// throttles has a limit.
ChipState state_of(const Program& program) {
  ChipState state{INT32_MAX, INT32_MAX};
  for (Device* device : program.devices()) {
    const int limit = device->usage().clock_limit_mhz.load(std::memory_order_relaxed);
    const int clock = device->profile().clock_mhz;
    state.cores = std::min(state.cores, device->profile().cores);
    state.clock_mhz = std::min(state.clock_mhz, limit == 0 ? clock : std::min(limit, clock));
  }
  return state;
}

int64_t length_of(const RunEvent& event, uint32_t input) {
  return input < event.lengths.size() ? std::max(event.lengths[input].value_or(0), 0) : 0;
}

}  // namespace

uint64_t ModelledRuns::nanoseconds(const RunEvent& event) {
  const auto costs = costs_of(event);
  const auto valid = [&](uint32_t input) { return length_of(event, input); };
  return uint64_t(std::llround(run_seconds(chip_profile(), state_of(*event.program), *costs, valid) * 1e9));
}

std::vector<uint64_t> ModelledRuns::cache_rows(const RunEvent& event) {
  const auto costs = costs_of(event);
  const auto& ops = costs->front().ops;
  const auto attention = std::find_if(ops.begin(), ops.end(), [](const OpCost& op) { return !op.caches.empty(); });
  std::vector<uint64_t> rows;
  if (attention == ops.end()) return rows;
  for (const CacheReads& slot : attention->caches) {
    const int64_t filled = length_of(event, slot.valid) + length_of(event, slot.current);
    rows.push_back(uint64_t(std::min(filled, slot.context)));
  }
  return rows;
}

void ModelledRuns::forget(uint64_t module) {
  const std::lock_guard lock(mutex_);
  costs_.erase(module);
}

std::shared_ptr<const ModelledRuns::Costs> ModelledRuns::costs_of(const RunEvent& event) {
  const std::lock_guard lock(mutex_);
  auto& costs = costs_[event.module];
  if (costs == nullptr) {
    Costs counted;
    for (const Graph& part : event.program->parts()) counted.push_back(cost_of(part));
    costs = std::make_shared<const Costs>(std::move(counted));
  }
  return costs;
}

}  // namespace tcim_lite::layers
