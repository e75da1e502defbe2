// The vendor's C++ device control on the tcim_lite emulator. C++11 or later.
//
// - Nothing here throws. A call that fails returns a Status other than OK and leaves its result as it was; one line
//   about it goes to the log, and tcim::GetLastError() returns it. A device id that does not exist, or a null pointer,
//   is INVALID_ARGUMENT; a device that does not answer (docs/fault-injection.md) is ERR_UNDEFINED.
// - Everything is as this process sees it: its own memory, its own runs, its own DVFS mode. Python's
//   tcim_lite.dev_ctrl shows the same values, but frequencies in MHz; reset callbacks belong to the language that
//   registered them.
// - Threads may call any function at once.
#ifndef TCIM_TCIM_DEV_CTRL_H_
#define TCIM_TCIM_DEV_CTRL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "tcim/tcim_runtime.h"

namespace tcim {
namespace dev_ctrl {

// How the clock follows the load.
enum DvfsMode : int {
  kPerformance = 0,  // always the highest clock; the default
  kOnDemand = 1,     // half the clock while nothing runs
};

// Device memory in MB of 2^20 bytes; whatever is used counts as 1 at least.
struct MemInfo {
  uint64_t mem_total = 0;
  uint64_t mem_used = 0;
  uint64_t mem_avail = 0;
};

using ResetCallback = std::function<void(int device_id)>;

// Stands for a registered callback; 0 for none.
using ResetCallbackHandle = uint64_t;

// The devices of a backend; made by HalDeviceFactory.
class TCIM_API HalDevice {
 public:
  ~HalDevice();
  HalDevice(const HalDevice&) = delete;
  HalDevice& operator=(const HalDevice&) = delete;

  // `*mode` becomes what this process has set, else kPerformance.
  tcim::Status GetDvfsMode(int device_id, DvfsMode* mode) const;

  // Results and their speed stay the same. A mode that does not exist is INVALID_ARGUMENT.
  tcim::Status SetDvfsMode(int device_id, DvfsMode mode);

  // The clock in Hz, as the vendor's C++ examples print it; Python has it in MHz.
  tcim::Status GetIpuFrequency(int device_id, uint64_t* hz) const;

  tcim::Status GetMemInfo(int device_id, MemInfo* info) const;

  // The share of the last second, in percent, in which the device ran something of this process.
  tcim::Status GetIpuUtilRate(int device_id, float* percent) const;

  // Runs the pre-reset callbacks, resets, runs the post-reset callbacks, each in registration order (C-17). Resetting
  // waits for the work queued so far, on every stream; modules and tensors keep their memory and go on working.
  //
  // Callbacks run on this thread without any lock of the runtime and may use the whole API. One that is unregistered
  // meanwhile is not called; a post-reset callback that is registered meanwhile is. If one throws, all the rest is done
  // even so, GetLastError tells of the first that threw, and the Status is ERR_UNDEFINED; the next reset is not
  // affected. UNSUPPORTED while a reset of the same device is under way.
  tcim::Status IpuReset(int device_id);

  // 0 for a device that does not exist or an empty function, which the log explains.
  ResetCallbackHandle RegisterPreResetCallback(int device_id, ResetCallback callback);
  ResetCallbackHandle RegisterPostResetCallback(int device_id, ResetCallback callback);

  // INVALID_ARGUMENT for a handle that is not registered, or not any more.
  tcim::Status UnregisterResetCallback(ResetCallbackHandle handle);

 private:
  friend class HalDeviceFactory;
  HalDevice();
};

class TCIM_API HalDeviceFactory {
 public:
  // `backend` is "Xh2HalBackend", "Xh2aHalBackend", "xh2", or "" for the default (TCIM_BACKEND). Null for one that is
  // unknown or not emulated.
  static std::shared_ptr<HalDevice> Create(const std::string& backend = "");
};

}  // namespace dev_ctrl
}  // namespace tcim

#endif  // TCIM_TCIM_DEV_CTRL_H_
