// How each process uses each device, stored where `tcim-lite smi` of the same user can read it.
//
// A process that uses a device keeps one memfd: shared memory without a name in any folder, sealed against shrinking
// and against other writers. Readers find it in /proc/<pid>/fd. So there is no file to clean up, fill or damage, and
// the descriptors of a killed process disappear with it. If it cannot be created, only smi is affected: it does not
// show the process.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/busy_meter.h"
#include "runtime/device_profile.h"

namespace tcim_lite {

enum class DvfsMode : int32_t { Performance = 0, OnDemand = 1 };

// One device in one process. Of fixed layout: another version of it needs another kMemfdName.
struct DeviceUsage {
  explicit DeviceUsage(const DeviceProfile& profile);

  // On demand the clock is halved while nothing runs; a limit holds in both modes.
  int clock_mhz() const noexcept;
  double utilization() const noexcept { return busy.share(); }

  std::atomic<int32_t> complete{0};  // not 0: everything below is there
  int32_t id;
  int32_t max_clock_mhz;
  std::atomic<DvfsMode> mode{DvfsMode::Performance};
  std::atomic<int32_t> clock_limit_mhz{0};  // 0: none
  uint64_t memory_total;
  std::atomic<uint64_t> memory_used{0};
  BusyMeter busy;
  char name[64];  // cut to fit, ends in 0
};

// A new record, which other processes see once it is complete; null if none is available. Records are never freed. Not
// thread-safe.
DeviceUsage* share_usage(const DeviceProfile& profile) noexcept;

// In the child of a fork: the records are the parent's.
void abandon_shared_usage() noexcept;

// One device in use by one process, as text and numbers.
struct ProcessUsage {
  int pid;
  std::string command;  // any bytes
  int device_id;
  std::string device_name;
  DvfsMode mode;
  int clock_mhz;
  uint64_t memory_used;
  uint64_t memory_total;
  double utilization;  // of the last second, 0 to 1
};

// The command line of a process; "" where it cannot be read. Any bytes.
std::string command_of(int pid);

// Of all processes whose descriptors this one may look at: those of the same user. Throws Error(Device) when /proc
// cannot be read.
std::vector<ProcessUsage> read_usage();

}  // namespace tcim_lite
