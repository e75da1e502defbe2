// Firmware upgrades of hm_sys.h: programs that offer them link and start; each call says that there is no firmware.
#include "base/error.h"
#include "facade/report.h"
#include "hm_sys.h"
#include "runtime/devices.h"

namespace {

using tcim_lite::ErrorCode;
using tcim_lite::fail;

constexpr const char* kNoFirmware = "an emulated device has no firmware; run the program on a card to upgrade one";

// There are no contexts: init never gives one.
hm_fw_upgrade_result_t refuse(const char* what) {
  tcim::internal::guarded(what, [] { fail(ErrorCode::Unsupported, kNoFirmware); });
  return HM_FW_UPGRADE_INVALID_PARAM;
}

}  // namespace

extern "C" {

hm_fw_upgrade_ctx_t* hm_fw_upgrade_init(int dev_index, const char*) {
  tcim::internal::guarded("hm_fw_upgrade_init", [&] {
    tcim_lite::visible_device(dev_index);
    fail(ErrorCode::Unsupported, kNoFirmware);
  });
  return nullptr;
}

hm_fw_upgrade_result_t hm_fw_upgrade_deinit(hm_fw_upgrade_ctx_t*) { return refuse("hm_fw_upgrade_deinit"); }

hm_fw_upgrade_result_t hm_fw_upgrade_execute(hm_fw_upgrade_ctx_t*) { return refuse("hm_fw_upgrade_execute"); }

hm_fw_upgrade_result_t hm_fw_upgrade_start(hm_fw_upgrade_ctx_t*) { return refuse("hm_fw_upgrade_start"); }

hm_fw_upgrade_result_t hm_fw_upgrade_get_result(hm_fw_upgrade_ctx_t*) { return refuse("hm_fw_upgrade_get_result"); }

hm_fw_upgrade_result_t hm_fw_upgrade_get_progress(hm_fw_upgrade_ctx_t*, int*) {
  return refuse("hm_fw_upgrade_get_progress");
}

int hm_fw_get_version(const char*, char[], size_t) {
  refuse("hm_fw_get_version");
  return -1;
}

}  // extern "C"
