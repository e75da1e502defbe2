#include "runtime/device_control.h"

#include "runtime/api_call.h"
#include "runtime/devices.h"
#include "runtime/stream.h"

namespace tcim_lite {

DeviceTelemetry device_telemetry(int id) {
  const ApiCall call("device_telemetry");
  const DeviceProfile visible = visible_device(id);
  const Device* device = find_device(id);
  if (device == nullptr) return {DvfsMode::Performance, visible.clock_mhz, visible.total_memory(), 0, 0};
  if (const DeviceUsage* usage = device->usage_if_any()) {
    return {device->dvfs_mode(), usage->clock_mhz(), usage->memory_total, device->memory_used(), usage->utilization()};
  }
  DeviceUsage idle(device->profile());
  idle.mode = device->dvfs_mode();
  return {device->dvfs_mode(), idle.clock_mhz(), idle.memory_total, device->memory_used(), 0};
}

void set_dvfs_mode(int id, DvfsMode mode) {
  const ApiCall call("set_dvfs_mode");
  use_device(id).set_dvfs_mode(mode);
}

void reset_device(int id) {
  const ApiCall call("reset_device");
  visible_device(id);
  Stream::drain_all();
  const Device* device = find_device(id);
  if (device == nullptr) return;
  if (DeviceUsage* usage = device->usage_if_any()) usage->busy.clear();
}

}  // namespace tcim_lite
