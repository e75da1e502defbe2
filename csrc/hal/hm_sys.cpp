// The vendor's C functions for the state of devices: a library of its own, libhal_xh2a.so, because programs link one of
// that name beside the runtime. Everything it knows is the core's.
#include "hm_sys.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "facade/report.h"
#include "runtime/chip_profile.h"
#include "runtime/device_control.h"
#include "runtime/device_profile.h"
#include "runtime/device_time.h"
#include "runtime/device_usage.h"
#include "runtime/module.h"

namespace {

using tcim_lite::ErrorCode;
using tcim_lite::fail;

constexpr uint64_t kMegabyte = uint64_t{1} << 20;
constexpr int kTopsOfACore = 80;  // nominal, int8: the M50 has two cores and 160 TOPS

// The device over all processes of this user.
struct DeviceState {
  uint64_t memory_total;
  uint64_t memory_used;
  double utilization;
  int clock_mhz;
};

DeviceState state_of(int id) {
  const tcim_lite::DeviceTelemetry own = tcim_lite::device_telemetry(id);
  DeviceState state{own.memory_total, own.memory_used, own.utilization, 0};
  for (const tcim_lite::ProcessUsage& usage : tcim_lite::read_usage()) {
    if (usage.device_id != id) continue;
    state.clock_mhz = std::max(state.clock_mhz, usage.clock_mhz);
    if (usage.pid == getpid()) continue;
    state.memory_used += usage.memory_used;
    state.utilization += usage.utilization;
  }
  state.utilization = std::min(state.utilization, 1.0);
  if (state.clock_mhz == 0) state.clock_mhz = own.clock_mhz;  // no process uses it
  return state;
}

template <typename Body>
int attempt(const char* what, Body&& body) noexcept {
  return tcim::internal::guarded(what, body) == tcim::OK ? 0 : -1;
}

// What `body` makes of the device's state, in `*result`.
template <typename Result, typename Body>
int read_state(const char* what, int id, Result* result, Body&& body) noexcept {
  return attempt(what, [&] {
    if (result == nullptr) fail(ErrorCode::Argument, "the pointer to the result is null");
    *result = Result(body(state_of(id)));
  });
}

void copy_text(std::string_view text, char* out, size_t size) {
  if (out == nullptr) fail(ErrorCode::Argument, "the buffer is null");
  if (text.size() >= size) {
    fail(ErrorCode::Argument, "'", text, "' does not fit the buffer of ", size, " bytes; ", text.size() + 1,
         " are needed");
  }
  std::memcpy(out, text.data(), text.size());
  out[text.size()] = '\0';
}

std::string imitated_version() {
  const std::string text = tcim_lite::version_text();
  return text.substr(0, text.find('\n'));
}

// For what a chip has and an emulated device lacks.
int refuse(const char* what, int id, const char* lacking) noexcept {
  return attempt(what, [&] {
    tcim_lite::visible_device(id);
    fail(ErrorCode::Unsupported, "an emulated device has no ", lacking);
  });
}

float utilization_of(const char* what, int id, std::optional<uint32_t> core) noexcept {
  return tcim::internal::guarded_or(what, -1.0F, [&] {
    const int cores = tcim_lite::visible_device(id).cores;
    if (core && *core >= uint32_t(cores))
      fail(ErrorCode::Argument, "device ", id, " has ", cores, " cores, no core ", *core);
    return float(state_of(id).utilization);
  });
}

}  // namespace

uint32_t hm_sys_get_device_info(hm_device_info* info) {
  return tcim::internal::guarded_or("hm_sys_get_device_info", uint32_t{0}, [&] {
    if (info == nullptr) fail(ErrorCode::Argument, "the pointer to the result is null");
    hm_device_info found{};
    for (const tcim_lite::DeviceProfile& device : tcim_lite::visible_devices()) {
      if (found.num_devices == HM_MAX_DEVICES) break;
      found.device_ids[found.num_devices++] = uint32_t(device.id);
    }
    *info = found;
    return found.num_devices;
  });
}

int hm_sys_check_device_index(int dev_index) {
  try {
    tcim_lite::visible_device(dev_index);
    return 0;
  } catch (...) {
    return -1;
  }
}

int hm_sys_get_device_name(int dev_index, char name[], int len) {
  return attempt("hm_sys_get_device_name",
                 [&] { copy_text(tcim_lite::visible_device(dev_index).name, name, size_t(std::max(len, 0))); });
}

int hm_sys_get_device_sn(int dev_index, char[], int) {
  return refuse("hm_sys_get_device_sn", dev_index, "serial number");
}

int hm_sys_get_vendor_id(int dev_index) { return refuse("hm_sys_get_vendor_id", dev_index, "vendor id"); }

int hm_sys_get_computing_power(int dev_index) {
  return tcim::internal::guarded_or("hm_sys_get_computing_power", -1,
                                    [&] { return kTopsOfACore * tcim_lite::visible_device(dev_index).cores; });
}

int hm_sys_get_core_count(int dev_index) {
  return tcim::internal::guarded_or("hm_sys_get_core_count", -1,
                                    [&] { return tcim_lite::visible_device(dev_index).cores; });
}

float hm_sys_get_ipu_utili_rate(int dev_index) {
  return utilization_of("hm_sys_get_ipu_utili_rate", dev_index, std::nullopt);
}

float hm_sys_get_ipu_core_utili_rate(int dev_index, uint32_t core_id) {
  return utilization_of("hm_sys_get_ipu_core_utili_rate", dev_index, core_id);
}

int hm_sys_get_ipu_frequency(int dev_index, uint64_t* frequency) {
  return read_state("hm_sys_get_ipu_frequency", dev_index, frequency,
                    [](const DeviceState& state) { return uint64_t(state.clock_mhz) * 1'000'000; });
}

int hm_sys_get_ipu_voltage(int dev_index, float*) { return refuse("hm_sys_get_ipu_voltage", dev_index, "voltage"); }

int hm_sys_get_mem_info(int dev_index, hm_mem_info* mem_info) {
  return read_state("hm_sys_get_mem_info", dev_index, mem_info, [](const DeviceState& state) {
    const uint64_t total = state.memory_total / kMegabyte;
    const uint64_t used = (state.memory_used + kMegabyte - 1) / kMegabyte;
    return hm_mem_info{uint32_t(total), uint32_t(used), uint32_t(total - std::min(total, used))};
  });
}

int hm_sys_get_ddr_size(int dev_index, uint64_t* ddr_size) {
  return read_state("hm_sys_get_ddr_size", dev_index, ddr_size,
                    [](const DeviceState& state) { return state.memory_total; });
}

int hm_sys_get_temperature(int dev_index, float* temp) {
  return read_state("hm_sys_get_temperature", dev_index, temp, [](const DeviceState& state) {
    return tcim_lite::temperature_c(tcim_lite::chip_profile(), state.utilization);
  });
}

int hm_sys_get_board_power(int dev_index, float* power) {
  return read_state("hm_sys_get_board_power", dev_index, power, [](const DeviceState& state) {
    return tcim_lite::power_watts(tcim_lite::chip_profile(), state.utilization);
  });
}

int hm_sys_get_version(char* version, size_t len) {
  return attempt("hm_sys_get_version", [&] { copy_text(imitated_version(), version, len); });
}

int hm_sys_get_driver_version(char* version, size_t len) {
  return attempt("hm_sys_get_driver_version", [&] { copy_text(imitated_version(), version, len); });
}

int hm_sys_get_device_version(int dev_index, char* version, size_t len) {
  return attempt("hm_sys_get_device_version", [&] {
    tcim_lite::visible_device(dev_index);
    copy_text(imitated_version(), version, len);
  });
}

int hm_sys_get_buildtime(char*, size_t) {
  return attempt("hm_sys_get_buildtime",
                 [] { fail(ErrorCode::Unsupported, "builds of the emulator do not record when they were made"); });
}

int hm_sys_get_bdf(int dev_index, char*, size_t) { return refuse("hm_sys_get_bdf", dev_index, "place on a PCIe bus"); }

int hm_sys_get_bandwidth(int dev_index, char*, size_t) {
  return refuse("hm_sys_get_bandwidth", dev_index, "PCIe link");
}

int hm_sys_get_dvfs_mode(int dev_index, hm_dvfs_mode* mode) {
  return attempt("hm_sys_get_dvfs_mode", [&] {
    if (mode == nullptr) fail(ErrorCode::Argument, "the pointer to the result is null");
    *mode = hm_dvfs_mode(int(tcim_lite::device_telemetry(dev_index).mode));
  });
}

int hm_sys_set_dvfs_mode(int dev_index, hm_dvfs_mode mode) {
  return attempt("hm_sys_set_dvfs_mode", [&] {
    if (mode != HM_DVFS_PERFORMANCE && mode != HM_DVFS_ONDEMAND) {
      fail(ErrorCode::Argument, "there is no DVFS mode ", int(mode),
           "; expected HM_DVFS_PERFORMANCE (0) or HM_DVFS_ONDEMAND (1)");
    }
    tcim_lite::visible_device(dev_index);
    tcim_lite::set_dvfs_mode(dev_index, tcim_lite::DvfsMode(int(mode)));
  });
}

int hm_sys_get_ctc_phy_id(int dev_index, int* group_id, int* chip_id) {
  return attempt("hm_sys_get_ctc_phy_id", [&] {
    if (group_id == nullptr || chip_id == nullptr) fail(ErrorCode::Argument, "a pointer to a result is null");
    *chip_id = tcim_lite::visible_device(dev_index).id;
    *group_id = 0;
  });
}
