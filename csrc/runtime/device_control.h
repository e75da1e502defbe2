// Telemetry and control of logical devices.
#pragma once

#include <cstdint>

#include "runtime/device_usage.h"

namespace tcim_lite {

// As this process sees and uses the device.
struct DeviceTelemetry {
  DvfsMode mode;
  int clock_mhz;
  uint64_t memory_total;  // bytes
  uint64_t memory_used;
  double utilization;  // of the last second, 0 to 1
};

// All of them throw Error(Device) for an id that does not exist.
DeviceTelemetry device_telemetry(int id);
void set_dvfs_mode(int id, DvfsMode mode);

// Waits for everything that was queued before, on any stream, and forgets the utilization. Modules, tensors and memory
// stay as they are.
void reset_device(int id);

}  // namespace tcim_lite
