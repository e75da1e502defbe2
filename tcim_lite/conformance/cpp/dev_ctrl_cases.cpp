// C-17 in C++: device control.
#include <cstdlib>
#include <stdexcept>

#include "check.h"
#include "tcim/tcim_dev_ctrl.h"

using namespace tcim::dev_ctrl;

CASE(c17_cpp_both_backend_names_make_a_device_that_answers) {
  for (const char* backend : {"Xh2HalBackend", "Xh2aHalBackend"}) {
    const auto hal = HalDeviceFactory::Create(backend);
    CHECK(hal != nullptr);
    if (hal == nullptr) continue;
    MemInfo info;
    CHECK_EQ(hal->GetMemInfo(0, &info), tcim::OK);
    CHECK(info.mem_total > 0 && info.mem_used <= info.mem_total);
    CHECK_EQ(info.mem_avail, info.mem_total - info.mem_used);
    uint64_t hz = 0;
    CHECK_EQ(hal->GetIpuFrequency(0, &hz), tcim::OK);
    CHECK(hz > 100'000'000);
    float percent = -1;
    CHECK_EQ(hal->GetIpuUtilRate(0, &percent), tcim::OK);
    CHECK(percent >= 0 && percent <= 100);
  }
}

CASE(c17_cpp_the_dvfs_mode_is_kept_for_each_device) {
  const auto hal = HalDeviceFactory::Create("Xh2aHalBackend");
  DvfsMode mode = kPerformance;
  CHECK_EQ(hal->SetDvfsMode(0, DvfsMode::kOnDemand), tcim::OK);
  CHECK_EQ(hal->GetDvfsMode(0, &mode), tcim::OK);
  CHECK_EQ(int(mode), int(kOnDemand));
  CHECK_EQ(hal->SetDvfsMode(0, DvfsMode::kPerformance), tcim::OK);
  CHECK_EQ(hal->GetDvfsMode(0, &mode), tcim::OK);
  CHECK_EQ(int(mode), int(kPerformance));
}

CASE(c17_cpp_reset_callbacks_run_in_order_and_may_load_a_model_again) {
  const auto hal = HalDeviceFactory::Create("Xh2HalBackend");
  std::string order;
  tcim::Module module;
  CHECK_EQ(module.LoadModel(folder + "/add.hmm"), tcim::OK);
  const auto before = hal->RegisterPreResetCallback(0, [&](int device) {
    order += "before" + std::to_string(device) + " ";
    module = tcim::Module();
  });
  const auto after = hal->RegisterPostResetCallback(0, [&](int device) {
    order += "after" + std::to_string(device) + " ";
    CHECK_EQ(module.LoadModel(folder + "/add.hmm"), tcim::OK);
  });
  const auto last = hal->RegisterPostResetCallback(0, [&](int) { order += "last"; });
  CHECK_EQ(hal->IpuReset(0), tcim::OK);
  CHECK_EQ(order, "before0 after0 last");
  CHECK_EQ(module.Run(), tcim::OK);
  CHECK_EQ(module.Sync(), tcim::OK);
  for (const auto handle : {before, after, last}) CHECK_EQ(hal->UnregisterResetCallback(handle), tcim::OK);
  CHECK_EQ(hal->UnregisterResetCallback(before), tcim::INVALID_ARGUMENT);
  order.clear();
  CHECK_EQ(hal->IpuReset(0), tcim::OK);
  CHECK_EQ(order, "");
}

CASE(device_control_refuses_what_does_not_exist) {
  CHECK(HalDeviceFactory::Create("Xh9") == nullptr);
  CHECK(LastErrorHas("Xh9"));
  const auto hal = HalDeviceFactory::Create();
  MemInfo info;
  info.mem_total = 7;
  CHECK_EQ(hal->GetMemInfo(99, &info), tcim::INVALID_ARGUMENT);
  CHECK(LastErrorHas("device 99 does not exist"));
  CHECK_EQ(info.mem_total, 7u);
  CHECK_EQ(hal->GetMemInfo(0, nullptr), tcim::INVALID_ARGUMENT);
  CHECK_EQ(hal->GetIpuUtilRate(-1, nullptr), tcim::INVALID_ARGUMENT);
  CHECK_EQ(hal->SetDvfsMode(0, DvfsMode(5)), tcim::INVALID_ARGUMENT);
  CHECK_EQ(hal->SetDvfsMode(99, kOnDemand), tcim::INVALID_ARGUMENT);
  CHECK_EQ(hal->IpuReset(99), tcim::INVALID_ARGUMENT);
  CHECK_EQ(hal->RegisterPreResetCallback(99, [](int) {}), 0u);
  CHECK_EQ(hal->RegisterPostResetCallback(0, nullptr), 0u);
  CHECK_EQ(hal->UnregisterResetCallback(0), tcim::INVALID_ARGUMENT);
}

CASE(the_clock_of_an_idle_device_on_demand_is_halved) {
  const auto hal = HalDeviceFactory::Create();
  uint64_t full = 0, idle = 0;
  CHECK_EQ(hal->GetIpuFrequency(1, &full), tcim::OK);
  CHECK_EQ(full, 1'400'000'000u);
  CHECK_EQ(hal->SetDvfsMode(1, kOnDemand), tcim::OK);
  CHECK_EQ(hal->GetIpuFrequency(1, &idle), tcim::OK);
  CHECK_EQ(idle, full / 2);
}

CASE(memory_of_tensors_counts_as_used) {
  const auto hal = HalDeviceFactory::Create();
  MemInfo before, after;
  CHECK_EQ(hal->GetMemInfo(0, &before), tcim::OK);
  const tcim::Buffer buffer = tcim::Buffer::CreateDeviceBuffer(8 << 20, 0);
  CHECK_EQ(hal->GetMemInfo(0, &after), tcim::OK);
  CHECK_EQ(after.mem_used, before.mem_used + 8);
  CHECK(after.mem_avail <= after.mem_total - after.mem_used);  // less where other processes use the device
}

CASE(a_reset_within_a_reset_is_refused_and_one_after_a_throwing_callback_is_done) {
  const auto hal = HalDeviceFactory::Create();
  tcim::Status inner = tcim::OK;
  bool reached = false;
  const auto nested = hal->RegisterPreResetCallback(0, [&](int device) { inner = hal->IpuReset(device); });
  const auto broken = hal->RegisterPreResetCallback(0, [](int) { throw std::runtime_error("a broken callback"); });
  const auto last = hal->RegisterPostResetCallback(0, [&](int) { reached = true; });
  CHECK_EQ(hal->IpuReset(0), tcim::ERR_UNDEFINED);
  CHECK(LastErrorHas("a broken callback"));
  CHECK_EQ(inner, tcim::UNSUPPORTED);
  CHECK(reached);
  CHECK_EQ(hal->UnregisterResetCallback(nested), tcim::OK);
  CHECK_EQ(hal->UnregisterResetCallback(broken), tcim::OK);
  CHECK_EQ(hal->IpuReset(0), tcim::OK);
  CHECK_EQ(hal->UnregisterResetCallback(last), tcim::OK);
}

CASE(post_reset_callbacks_run_even_if_the_reset_itself_fails) {
  const auto hal = HalDeviceFactory::Create();
  const char* const declared = std::getenv("TCIM_LITE_DEVICE_NUM");
  const std::string before = declared == nullptr ? "" : declared;
  const auto restore = [&] {
    if (before.empty()) return unsetenv("TCIM_LITE_DEVICE_NUM");
    return setenv("TCIM_LITE_DEVICE_NUM", before.c_str(), 1);
  };
  bool reached = false;
  const auto broken = hal->RegisterPreResetCallback(0, [](int) { setenv("TCIM_LITE_DEVICE_NUM", "many", 1); });
  const auto last = hal->RegisterPostResetCallback(0, [&](int) { reached = true; });
  CHECK(hal->IpuReset(0) != tcim::OK);
  CHECK(LastErrorHas("TCIM_LITE_DEVICE_NUM='many'"));
  CHECK(reached);
  CHECK_EQ(restore(), 0);
  CHECK_EQ(hal->UnregisterResetCallback(broken), tcim::OK);
  CHECK_EQ(hal->IpuReset(0), tcim::OK);
  CHECK_EQ(hal->UnregisterResetCallback(last), tcim::OK);
}

CASE(a_callback_may_unregister_another_that_is_not_called_then) {
  const auto hal = HalDeviceFactory::Create();
  int calls = 0;
  ResetCallbackHandle second = 0;
  const auto first = hal->RegisterPreResetCallback(0, [&](int) { hal->UnregisterResetCallback(second); });
  second = hal->RegisterPreResetCallback(0, [&](int) { ++calls; });
  CHECK_EQ(hal->IpuReset(0), tcim::OK);
  CHECK_EQ(calls, 0);
  CHECK_EQ(hal->UnregisterResetCallback(first), tcim::OK);
}

CASE(c17_cpp_a_callback_that_throws_does_not_spoil_the_next_reset) {
  const auto hal = HalDeviceFactory::Create("Xh2HalBackend");
  std::string order;
  ResetCallbackHandle broken = 0;
  const auto fail = [&](int) {
    order += "failed ";
    CHECK_EQ(hal->UnregisterResetCallback(broken), tcim::OK);
    throw 7;
  };
  const auto before = hal->RegisterPreResetCallback(0, [&](int) { order += "before "; });
  const auto after = hal->RegisterPostResetCallback(0, [&](int) { order += "after "; });
  for (const bool early : {true, false}) {
    broken = early ? hal->RegisterPreResetCallback(0, fail) : hal->RegisterPostResetCallback(0, fail);
    order.clear();
    CHECK(hal->IpuReset(0) != tcim::OK);
    CHECK_EQ(order, early ? "before failed after " : "before after failed ");
    order.clear();
    CHECK_EQ(hal->IpuReset(0), tcim::OK);
    CHECK_EQ(order, "before after ");
  }
  for (const auto handle : {before, after}) CHECK_EQ(hal->UnregisterResetCallback(handle), tcim::OK);
}
