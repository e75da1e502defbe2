// The reset callbacks of C++ callers, and the reset around which they run.
#pragma once

#include "tcim/tcim_dev_ctrl.h"

namespace tcim::internal {

enum class ResetPhase { Before, After };

dev_ctrl::ResetCallbackHandle add_reset_callback(int device_id, ResetPhase phase, dev_ctrl::ResetCallback callback);

// Whether it was registered; it no longer is.
bool remove_reset_callback(dev_ctrl::ResetCallbackHandle handle);

// What HalDevice::IpuReset says, for a device that exists. Throws Error(Unsupported) while a reset of it is under way,
// and what the first callback threw, after all the rest is done.
void reset_with_callbacks(int device_id);

}  // namespace tcim::internal
