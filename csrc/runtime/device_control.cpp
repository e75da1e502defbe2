#include "runtime/device_control.h"

#include "runtime/api_call.h"
#include "runtime/devices.h"
#include "runtime/stream.h"

namespace tcim_lite {

DeviceTelemetry device_telemetry(int id) {
  return api_call(
      device_call<"device_telemetry">, [&](CallEvent& event) { event.device_id = id; },
      [&]() -> DeviceTelemetry {
        const DeviceProfile visible = visible_device(id);
        const Device* device = find_device(id);
        if (device == nullptr) return {DvfsMode::Performance, visible.clock_mhz, visible.total_memory(), 0, 0};
        if (const DeviceUsage* usage = device->usage_if_any()) {
          return {device->dvfs_mode(), usage->clock_mhz(), usage->memory_total, device->memory_used(),
                  usage->utilization()};
        }
        DeviceUsage idle(device->profile());
        idle.mode = device->dvfs_mode();
        return {device->dvfs_mode(), idle.clock_mhz(), idle.memory_total, device->memory_used(), 0};
      });
}

void set_dvfs_mode(int id, DvfsMode mode) {
  return api_call(
      device_call<"set_dvfs_mode">, [&](CallEvent& event) { event.device_id = id; },
      [&] { use_device(id).set_dvfs_mode(mode); });
}

void reset_device(int id) {
  return api_call(
      host_call<"reset_device">, [&](CallEvent& event) { event.device_id = id; },
      [&] {
        visible_device(id);
        Stream::drain_all();
        const Device* device = find_device(id);
        if (device == nullptr) return;
        if (DeviceUsage* usage = device->usage_if_any()) usage->busy.clear();
      });
}

}  // namespace tcim_lite
