// Which logical devices exist and their properties. Every call reads the environment anew.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tcim_lite {

constexpr int kMaxDevices = 4096;  // ids are below

struct DeviceProfile {
  int id = 0;
  std::string name = "xh2 (emulated)";
  uint64_t memory_bytes = 0;  // 0: whatever the machine has, and no limit
  int cores = 2;
  int clock_mhz = 1400;

  // Bytes: memory_bytes, or the memory of the machine.
  uint64_t total_memory() const;
};

// HOUMO_VISIBLE_DEVICES, else the profile file TCIM_LITE_DEVICES, else TCIM_LITE_DEVICE_NUM, else one device. Throws
// Error(Device) or Error(Argument) naming the invalid variable or line.
std::vector<DeviceProfile> visible_devices();
// Their number, as a call of the API.
size_t count_visible_devices();

// The visible device of this id. Throws Error(Device) when there is none.
DeviceProfile visible_device(int id);

}  // namespace tcim_lite
