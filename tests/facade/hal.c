// The C functions of hm_sys.h, in C: argv[1] is a device that exists. Prints what they say of it, a line each.
#include <hm_sys.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPECT(x)                          \
  if (!(x)) {                              \
    printf("line %d: %s\n", __LINE__, #x); \
    exit(1);                               \
  }

static void print_state(int id) {
  hm_device_info devices;
  hm_mem_info memory;
  uint64_t bytes, hertz;
  float celsius, watts;
  char text[HM_SYS_DEVICE_NAME_LEN];
  EXPECT(hm_sys_get_device_info(&devices) == devices.num_devices && devices.num_devices > 0);
  EXPECT(hm_sys_check_device_index(id) == 0);
  EXPECT(hm_sys_get_mem_info(id, &memory) == 0);
  EXPECT(hm_sys_get_ddr_size(id, &bytes) == 0);
  EXPECT(hm_sys_get_ipu_frequency(id, &hertz) == 0);
  EXPECT(hm_sys_get_temperature(id, &celsius) == 0);
  EXPECT(hm_sys_get_board_power(id, &watts) == 0);
  EXPECT(memory.mem_avail == (memory.mem_used < memory.mem_total ? memory.mem_total - memory.mem_used : 0));
  printf("ids");
  for (uint32_t i = 0; i < devices.num_devices; ++i) printf(" %u", devices.device_ids[i]);
  printf("\nused %u\ntotal %u\nbytes %llu\nhertz %llu\n", memory.mem_used, memory.mem_total, (unsigned long long)bytes,
         (unsigned long long)hertz);
  printf("celsius %.1f\nwatts %.1f\nutilization %.3f\n", celsius, watts, hm_sys_get_ipu_utili_rate(id));
  printf("cores %d\ntops %d\n", hm_sys_get_core_count(id), hm_sys_get_computing_power(id));
  EXPECT(hm_sys_get_device_name(id, text, sizeof(text)) == 0);
  printf("name %s\n", text);
  EXPECT(hm_sys_get_version(text, sizeof(text)) == 0);
  printf("version %s\n", text);
  char other[HM_SYS_DEVICE_NAME_LEN];
  EXPECT(hm_sys_get_driver_version(other, sizeof(other)) == 0 && strcmp(text, other) == 0);
  EXPECT(hm_sys_get_device_version(id, other, sizeof(other)) == 0 && strcmp(text, other) == 0);
}

static void clocks(int id) {
  hm_dvfs_mode mode = HM_DVFS_MODE_MAX;
  uint64_t fast, slow;
  int group = -1, chip = -1;
  EXPECT(hm_sys_get_dvfs_mode(id, &mode) == 0 && mode == HM_DVFS_PERFORMANCE);
  EXPECT(hm_sys_get_ipu_frequency(id, &fast) == 0);
  EXPECT(hm_sys_set_dvfs_mode(id, HM_DVFS_ONDEMAND) == 0);
  EXPECT(hm_sys_get_dvfs_mode(id, &mode) == 0 && mode == HM_DVFS_ONDEMAND);
  EXPECT(hm_sys_get_ipu_frequency(id, &slow) == 0);
  EXPECT(hm_sys_set_dvfs_mode(id, HM_DVFS_MODE_MAX) == -1);
  EXPECT(hm_sys_get_dvfs_mode(id, &mode) == 0 && mode == HM_DVFS_ONDEMAND);
  EXPECT(hm_sys_get_ctc_phy_id(id, &group, &chip) == 0 && group == 0 && chip == id);
  printf("idle %llu of %llu\n", (unsigned long long)slow, (unsigned long long)fast);
}

// What fails writes nothing.
static void failures(int id, int missing) {
  struct hm_mem_info memory = {1, 2, 3};
  char text[64] = "kept";
  float number = 4;
  uint64_t size = 5;
  EXPECT(hm_sys_check_device_index(missing) == -1);
  EXPECT(hm_sys_get_mem_info(missing, &memory) == -1 && memory.mem_used == 2);
  EXPECT(hm_sys_get_mem_info(id, NULL) == -1);
  EXPECT(hm_sys_get_device_info(NULL) == 0);
  EXPECT(hm_sys_get_ddr_size(missing, &size) == -1 && size == 5);
  EXPECT(hm_sys_get_temperature(missing, &number) == -1 && number == 4);
  EXPECT(hm_sys_get_core_count(missing) == -1 && hm_sys_get_computing_power(missing) == -1);
  EXPECT(hm_sys_get_ipu_utili_rate(missing) < 0);
  EXPECT(hm_sys_get_ipu_core_utili_rate(id, 1) >= 0 && hm_sys_get_ipu_core_utili_rate(id, 2) < 0);
  EXPECT(hm_sys_get_version(text, 4) == -1 && hm_sys_get_device_name(id, text, -1) == -1);
  EXPECT(hm_sys_get_device_sn(id, text, sizeof(text)) == -1 && hm_sys_get_vendor_id(id) == -1);
  EXPECT(hm_sys_get_ipu_voltage(id, &number) == -1 && number == 4);
  EXPECT(hm_sys_get_bdf(id, text, sizeof(text)) == -1 && hm_sys_get_bandwidth(id, text, sizeof(text)) == -1);
  EXPECT(hm_sys_get_buildtime(text, sizeof(text)) == -1);
  EXPECT(hm_sys_get_dvfs_mode(id, NULL) == -1 && hm_sys_get_ctc_phy_id(id, NULL, NULL) == -1);
  EXPECT(hm_sys_set_dvfs_mode(missing, HM_DVFS_ONDEMAND) == -1);
  EXPECT(strcmp(text, "kept") == 0);
}

// Nothing is upgraded, whatever the program does with the null that it got.
static void no_firmware(int id) {
  hm_fw_upgrade_ctx_t* context = hm_fw_upgrade_init(id, "firmware.img");
  int progress = 6;
  char text[16] = "kept";
  EXPECT(context == NULL && hm_fw_upgrade_init(4000, NULL) == NULL);
  EXPECT(hm_fw_upgrade_start(context) == HM_FW_UPGRADE_INVALID_PARAM);
  EXPECT(hm_fw_upgrade_execute(context) == HM_FW_UPGRADE_INVALID_PARAM);
  EXPECT(hm_fw_upgrade_get_progress(context, &progress) == HM_FW_UPGRADE_INVALID_PARAM && progress == 6);
  EXPECT(hm_fw_upgrade_get_result(context) == HM_FW_UPGRADE_INVALID_PARAM);
  EXPECT(hm_fw_upgrade_deinit(context) == HM_FW_UPGRADE_INVALID_PARAM && HM_FW_UPGRADE_RESULT_MAX == 13);
  EXPECT(hm_fw_get_version("firmware.img", text, sizeof(text)) == -1 && strcmp(text, "kept") == 0);
}

int main(int argc, char** argv) {
  const int id = argc > 1 ? atoi(argv[1]) : 0;
  print_state(id);
  failures(id, 4000);
  failures(id, -1);
  no_firmware(id);
  clocks(id);
  return 0;
}
