/* The vendor's C functions for the state of devices, on the tcim_lite emulator. C and C++.
 *
 * - Functions that return int give 0, or -1 if they fail; then one line says why (standard error, TCIM_LITE_LOG). What
 *   they write is left alone when they fail. A device id that does not exist fails everywhere.
 * - Memory and utilization are those of all processes of this user on the device, as `tcim-lite smi` shows them. The
 *   DVFS mode is this process's. Temperature and power are modelled from the utilization (docs/clock.md).
 * - An emulated device has no eFuse, no PCIe link, no voltage and no firmware: what would be read from there fails.
 * - Threads may call any function at once.
 */
#ifndef TCIM_LITE_HM_SYS_H_
#define TCIM_LITE_HM_SYS_H_

#include <stddef.h>
#include <stdint.h>

#ifndef HM_HAL_API
#define HM_HAL_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define HM_SYS_DEVICE_NAME_LEN 16
#define HM_SYS_DEVICE_SN_LEN 32
#define HM_MAX_DEVICES 32

/* The types have names in C as well, with and without `struct` and `enum`. */
typedef struct hm_device_info {
  uint32_t num_devices;
  uint32_t device_ids[HM_MAX_DEVICES];
} hm_device_info;

/* In MB of 2^20 bytes; whatever is used counts as 1 at least. */
typedef struct hm_mem_info {
  uint32_t mem_total;
  uint32_t mem_used;
  uint32_t mem_avail;
} hm_mem_info;

typedef enum hm_dvfs_mode {
  HM_DVFS_PERFORMANCE = 0, /* always the highest clock; the default */
  HM_DVFS_ONDEMAND,        /* half the clock while nothing runs */
  HM_DVFS_MODE_MAX         /* the number of modes */
} hm_dvfs_mode;

/* How many devices there are, 0 if that cannot be read. Of more than HM_MAX_DEVICES the first are given. */
HM_HAL_API uint32_t hm_sys_get_device_info(struct hm_device_info* info);
/* 0 if the device exists, else -1, without a line about it. */
HM_HAL_API int hm_sys_check_device_index(int dev_index);

/* Texts end in 0; a buffer that is too small fails. The name is that of the device profile. */
HM_HAL_API int hm_sys_get_device_name(int dev_index, char name[], int len);
HM_HAL_API int hm_sys_get_device_sn(int dev_index, char sn[], int len); /* fails */
HM_HAL_API int hm_sys_get_vendor_id(int dev_index);                     /* fails */
HM_HAL_API int hm_sys_get_computing_power(int dev_index);               /* nominal int8 TOPS, -1 if it fails */
HM_HAL_API int hm_sys_get_core_count(int dev_index);                    /* -1 if it fails */

/* Of the last second, 0 to 1; below 0 if it fails. The cores of an emulated device are busy together. */
HM_HAL_API float hm_sys_get_ipu_utili_rate(int dev_index);
HM_HAL_API float hm_sys_get_ipu_core_utili_rate(int dev_index, uint32_t core_id);

HM_HAL_API int hm_sys_get_ipu_frequency(int dev_index, uint64_t* frequency); /* Hz: the highest of any process */
HM_HAL_API int hm_sys_get_ipu_voltage(int dev_index, float* voltage);        /* fails */
HM_HAL_API int hm_sys_get_mem_info(int dev_index, struct hm_mem_info* mem_info);
HM_HAL_API int hm_sys_get_ddr_size(int dev_index, uint64_t* ddr_size); /* bytes */
HM_HAL_API int hm_sys_get_temperature(int dev_index, float* temp);     /* degrees Celsius, modelled */
HM_HAL_API int hm_sys_get_board_power(int dev_index, float* power);    /* watts, modelled */

/* SDK, driver and firmware have the version of the runtime that is imitated: the first line of tcim::GetVersion(). */
HM_HAL_API int hm_sys_get_version(char* version, size_t len);
HM_HAL_API int hm_sys_get_driver_version(char* version, size_t len);
HM_HAL_API int hm_sys_get_device_version(int dev_index, char* version, size_t len);
HM_HAL_API int hm_sys_get_buildtime(char* buildtime, size_t len); /* fails: builds do not record it */

HM_HAL_API int hm_sys_get_bdf(int dev_index, char* bdf, size_t len);             /* fails */
HM_HAL_API int hm_sys_get_bandwidth(int dev_index, char* bandwidth, size_t len); /* fails */

HM_HAL_API int hm_sys_get_dvfs_mode(int dev_index, enum hm_dvfs_mode* mode);
/* Results and their speed stay the same. */
HM_HAL_API int hm_sys_set_dvfs_mode(int dev_index, enum hm_dvfs_mode mode);

/* All emulated devices are in group 0 and reach each other; the chip's id is that of the device. */
HM_HAL_API int hm_sys_get_ctc_phy_id(int dev_index, int* group_id, int* chip_id);

/* Firmware upgrades, so that programs which offer them link. An emulated device has no firmware: `init` returns null,
 * the other functions return HM_FW_UPGRADE_INVALID_PARAM for whatever context they get, and hm_fw_get_version -1. */
typedef enum hm_fw_upgrade_result {
  HM_FW_UPGRADE_SUCCESS = 0,
  HM_FW_UPGRADE_INVALID_PARAM,
  HM_FW_UPGRADE_MEM_ALLOC_FAILED,
  HM_FW_UPGRADE_FILE_OPER_FAILED,
  HM_FW_UPGRADE_INVALID_HEADER,
  HM_FW_UPGRADE_INVALID_MAGIC,
  HM_FW_UPGRADE_INVALID_META,
  HM_FW_UPGRADE_INVALID_IMAGE_SIZE,
  HM_FW_UPGRADE_INVALID_IMAGE_CRC,
  HM_FW_UPGRADE_DEVICE_OPER_FAILED,
  HM_FW_UPGRADE_FLASH_PROGRAM_FAILED,
  HM_FW_UPGRADE_THREAD_ERROR,
  HM_FW_UPGRADE_BUSY,
  HM_FW_UPGRADE_RESULT_MAX /* no result: their number */
} hm_fw_upgrade_result_t;
typedef struct hm_fw_upgrade_ctx hm_fw_upgrade_ctx_t;

HM_HAL_API hm_fw_upgrade_ctx_t* hm_fw_upgrade_init(int dev_index, const char* fw_img);
HM_HAL_API hm_fw_upgrade_result_t hm_fw_upgrade_deinit(hm_fw_upgrade_ctx_t* ctx);
HM_HAL_API hm_fw_upgrade_result_t hm_fw_upgrade_execute(hm_fw_upgrade_ctx_t* ctx);
HM_HAL_API hm_fw_upgrade_result_t hm_fw_upgrade_start(hm_fw_upgrade_ctx_t* ctx);
HM_HAL_API hm_fw_upgrade_result_t hm_fw_upgrade_get_result(hm_fw_upgrade_ctx_t* ctx);
HM_HAL_API hm_fw_upgrade_result_t hm_fw_upgrade_get_progress(hm_fw_upgrade_ctx_t* ctx, int* progress); /* 0 to 10000 */
HM_HAL_API int hm_fw_get_version(const char* fw_path, char version[], size_t len);

#ifdef __cplusplus
}
#endif

#endif /* TCIM_LITE_HM_SYS_H_ */
