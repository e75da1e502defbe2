// HalDevice: telemetry and clocks of devices. Reset callbacks are in reset_callbacks.cpp.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "facade/report.h"
#include "facade/reset_callbacks.h"
#include "runtime/device_control.h"
#include "runtime/device_profile.h"
#include "runtime/devices.h"
#include "tcim/tcim_dev_ctrl.h"

namespace tcim::dev_ctrl {
namespace {

using internal::guarded;
using internal::guarded_or;
using internal::ResetPhase;
using tcim_lite::ErrorCode;
using tcim_lite::fail;

constexpr uint64_t kMegabyte = uint64_t{1} << 20;

// An id that does not exist is the caller's mistake here, not the device's.
void check_device(int id) {
  const std::vector<tcim_lite::DeviceProfile> devices = tcim_lite::visible_devices();
  const bool exists = std::any_of(devices.begin(), devices.end(), [&](const auto& device) { return device.id == id; });
  if (!exists) fail(ErrorCode::Argument, "device ", id, " does not exist; the environment declares ", devices.size());
}

tcim_lite::DeviceTelemetry telemetry_for(int id, const void* result) {
  if (result == nullptr) fail(ErrorCode::Argument, "the pointer to the result is null");
  check_device(id);
  return tcim_lite::device_telemetry(id);
}

ResetCallbackHandle registered(const char* what, int id, ResetPhase phase, ResetCallback callback) {
  return guarded_or(what, ResetCallbackHandle{0}, [&] {
    if (!callback) fail(ErrorCode::Argument, "the callback is empty; nothing is registered");
    check_device(id);
    return internal::add_reset_callback(id, phase, std::move(callback));
  });
}

}  // namespace

HalDevice::HalDevice() = default;
HalDevice::~HalDevice() = default;

tcim::Status HalDevice::GetDvfsMode(int device_id, DvfsMode* mode) const {
  return guarded("HalDevice::GetDvfsMode", [&] { *mode = DvfsMode(telemetry_for(device_id, mode).mode); });
}

tcim::Status HalDevice::SetDvfsMode(int device_id, DvfsMode mode) {
  return guarded("HalDevice::SetDvfsMode", [&] {
    if (mode != kPerformance && mode != kOnDemand)
      fail(ErrorCode::Argument, "there is no DVFS mode ", int(mode), "; expected kPerformance (0) or kOnDemand (1)");
    check_device(device_id);
    tcim_lite::set_dvfs_mode(device_id, tcim_lite::DvfsMode(int(mode)));
  });
}

tcim::Status HalDevice::GetIpuFrequency(int device_id, uint64_t* hz) const {
  return guarded("HalDevice::GetIpuFrequency",
                 [&] { *hz = uint64_t(telemetry_for(device_id, hz).clock_mhz) * 1'000'000; });
}

tcim::Status HalDevice::GetMemInfo(int device_id, MemInfo* info) const {
  return guarded("HalDevice::GetMemInfo", [&] {
    const tcim_lite::DeviceTelemetry telemetry = telemetry_for(device_id, info);
    info->mem_total = telemetry.memory_total / kMegabyte;
    info->mem_used = (telemetry.memory_used + kMegabyte - 1) / kMegabyte;
    info->mem_avail = info->mem_total - std::min(info->mem_total, info->mem_used);
  });
}

tcim::Status HalDevice::GetIpuUtilRate(int device_id, float* percent) const {
  return guarded("HalDevice::GetIpuUtilRate",
                 [&] { *percent = float(std::round(1000 * telemetry_for(device_id, percent).utilization) / 10); });
}

tcim::Status HalDevice::IpuReset(int device_id) {
  return guarded("HalDevice::IpuReset", [&] {
    check_device(device_id);
    internal::reset_with_callbacks(device_id);
  });
}

ResetCallbackHandle HalDevice::RegisterPreResetCallback(int device_id, ResetCallback callback) {
  return registered("HalDevice::RegisterPreResetCallback", device_id, ResetPhase::Before, std::move(callback));
}

ResetCallbackHandle HalDevice::RegisterPostResetCallback(int device_id, ResetCallback callback) {
  return registered("HalDevice::RegisterPostResetCallback", device_id, ResetPhase::After, std::move(callback));
}

tcim::Status HalDevice::UnregisterResetCallback(ResetCallbackHandle handle) {
  return guarded("HalDevice::UnregisterResetCallback", [&] {
    if (!internal::remove_reset_callback(handle))
      fail(ErrorCode::Argument, "no reset callback is registered under the handle ", handle);
  });
}

std::shared_ptr<HalDevice> HalDeviceFactory::Create(const std::string& backend) {
  return guarded_or("HalDeviceFactory::Create", std::shared_ptr<HalDevice>(), [&] {
    tcim_lite::resolve_backend(backend);
    return std::shared_ptr<HalDevice>(new HalDevice());
  });
}

}  // namespace tcim::dev_ctrl
