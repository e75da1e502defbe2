// Asking Linux for AMX.
#pragma once

namespace tcim_lite {

// True when this process may use AMX's tiles: Linux grants their 8 KiB of state to a process that asks, and to all its
// threads. It says no when a thread's signal stack could not hold the state. False elsewhere than on x86-64.
bool request_amx_tiles();

}  // namespace tcim_lite
