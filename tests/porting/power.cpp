// What the vendor's chat does with --power_opt: lower the clock while it waits, show the device, reload after a reset.
#include <cstdio>
#include <cstdlib>

#include "tcim/tcim_dev_ctrl.h"
#include "tcim/tcim_runtime.h"

using namespace tcim::dev_ctrl;

#define CHECK_STATUS(x)                             \
  if ((x) != tcim::Status::OK) {                    \
    printf("%s failed at line %d\n", #x, __LINE__); \
    exit(1);                                        \
  }

int main(int argc, char** argv) {
  const int dev_id = 0;
  const std::string path = argv[argc - 1];
  auto hal_device = HalDeviceFactory::Create("Xh2aHalBackend");
  CHECK_STATUS(hal_device->SetDvfsMode(dev_id, DvfsMode::kOnDemand));
  tcim::Module module;
  CHECK_STATUS(module.LoadModel(path));

  auto pre = hal_device->RegisterPreResetCallback(dev_id, [&](int id) {
    printf("before reset of %d\n", id);
    module = tcim::Module();
  });
  auto post = hal_device->RegisterPostResetCallback(dev_id, [&](int id) {
    CHECK_STATUS(module.LoadModel(path));
    printf("after reset of %d\n", id);
  });
  CHECK_STATUS(hal_device->IpuReset(dev_id));
  CHECK_STATUS(hal_device->UnregisterResetCallback(pre));
  CHECK_STATUS(hal_device->UnregisterResetCallback(post));
  CHECK_STATUS(module.Run());
  CHECK_STATUS(module.Sync());

  MemInfo mem_info;
  float util = 0;
  uint64_t freq = 0;
  CHECK_STATUS(hal_device->SetDvfsMode(dev_id, DvfsMode::kPerformance));
  CHECK_STATUS(hal_device->GetMemInfo(dev_id, &mem_info));
  CHECK_STATUS(hal_device->GetIpuUtilRate(dev_id, &util));
  CHECK_STATUS(hal_device->GetIpuFrequency(dev_id, &freq));
  printf("frequency: %lu Hz\n", (unsigned long)freq);
  printf("memory adds up: %d\n", mem_info.mem_total == mem_info.mem_used + mem_info.mem_avail);
  printf("utilization is a percentage: %d\n", util >= 0 && util <= 100);
  return 0;
}
